"""KV that different prompts share: blocks of tokens, chained by hash, least recently used out first.

Few-shot prompts of one family begin alike, and every prompt of a chat template does. A block is worth keeping once two
different prompts were seen to hold it. Blocks live for one version of the weights: the engine clears them at an update,
and when it runs out of work, so that what a batch computes does not depend on the batch before it.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

from posttrain.attention.slots import Memory, Span

BLOCK = 32  # tokens
REMEMBERED = 500_000  # blocks whose sighting is remembered


def chain(tokens: Sequence[int]) -> list[bytes]:
    """One hash for each whole block of ``tokens``, over everything up to its end."""
    names, last = [], b""
    for at in range(0, len(tokens) - BLOCK + 1, BLOCK):
        last = hashlib.blake2b(last + array("q", tokens[at : at + BLOCK]).tobytes(), digest_size=16).digest()
        names.append(last)
    return names


class Prefixes:
    """The shared blocks, at most ``capacity`` tokens of them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity // BLOCK
        self.seen: dict[bytes, int | None] = {}  # block -> the prompt that holds it, None: several do
        self.spans: OrderedDict[bytes, Span] = OrderedDict()

    def sight(self, tokens: tuple[int, ...]) -> list[bytes]:
        """Notes the blocks of a prompt that has come in, and names them; the last token is never among them."""
        if not self.capacity:
            return []
        if len(self.seen) > REMEMBERED:
            self.clear(sightings=True)
        blocks, prompt = chain(tokens[:-1]), hash(tokens)
        for block in blocks:
            if self.seen.setdefault(block, prompt) != prompt:
                self.seen[block] = None
        return blocks

    def shared(self, block: bytes) -> bool:
        """Whether several prompts hold the block."""
        return self.seen.get(block, block) is None

    def held(self, blocks: Sequence[bytes]) -> int:
        """How many leading blocks are here."""
        return next((i for i, block in enumerate(blocks) if block not in self.spans), len(blocks))

    def load(self, memory: Memory, slot: int, blocks: Sequence[bytes]) -> None:
        """Puts blocks that are here at the start of a slot."""
        for i, block in enumerate(blocks):
            memory.load(slot, i * BLOCK, self.spans[block])
            self.spans.move_to_end(block)

    def save(self, memory: Memory, slot: int, blocks: Sequence[bytes]) -> None:
        """Keeps the blocks of a filled slot that several prompts hold."""
        for i, block in enumerate(blocks):
            if self.shared(block) and block not in self.spans:
                self.spans[block] = memory.save(slot, i * BLOCK, (i + 1) * BLOCK)
        while len(self.spans) > self.capacity:
            self.spans.popitem(last=False)

    def clear(self, *, sightings: bool) -> None:
        """Forgets the KV, and with ``sightings`` which blocks were seen."""
        self.spans.clear()
        if sightings:
            self.seen.clear()

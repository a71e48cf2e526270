"""Fills the slots of new rows, computing nothing twice.

Where the KV of a prompt comes from, in this order: what was kept of the same attempt's last turn, a slot or a saved copy that
holds the very same prompt (the other attempts of a group), blocks that different prompts share, and only then the model.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from posttrain.attention.slots import Span
from posttrain.engines.native.prefixes import BLOCK, Prefixes
from posttrain.engines.native.rows import Row
from posttrain.engines.native.runner import Runner

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """KV of an attempt between two of its turns."""

    tokens: list[int]
    span: Span


class Filling:
    """The KV outside the slots, and who still waits for which prompt."""

    def __init__(self, runner: Runner, cached_tokens: int) -> None:
        self._runner = runner
        self._prefixes = Prefixes(cached_tokens)
        self._kept: dict[str, Kept] = {}  # by attempt
        self._prompts: dict[Tokens, Span] = {}  # whole prompts that rows in the queue wait for and no slot holds
        self._waiting: Counter[Tokens] = Counter()

    def sight(self, tokens: Tokens) -> list[bytes]:
        """A prompt has joined the queue; returns the names of its blocks."""
        self._waiting[tokens] += 1
        return self._prefixes.sight(tokens)

    def leave(self, row: Row) -> None:
        """A row has left the queue without a slot; `fill` does this for those that get one, and nobody leaves twice."""
        tokens = row.request.token_ids
        self._waiting[tokens] -= 1
        if self._waiting[tokens] <= 0:
            del self._waiting[tokens]
            self._prompts.pop(tokens, None)

    def empty(self) -> None:
        """All have left at once."""
        self._waiting.clear()
        self._prompts.clear()

    def fill(self, rows: list[Row], first: int) -> Counter[str]:
        """Fills the slots of ``rows[first:]``; counts prompt tokens prefilled and reused."""
        counts: Counter[str] = Counter()
        holders = {row.request.token_ids: slot for slot, row in enumerate(rows[:first])}
        todo = list(range(first, len(rows)))
        while todo:
            pieces: list[tuple[int, int, Tokens]] = []
            later: list[int] = []
            coming: set[Tokens | bytes] = set()
            for slot in todo:
                row = rows[slot]
                tokens = row.request.token_ids
                held, missing = self._held(row, holders)
                if held < len(tokens) - 1 and (tokens in coming or (missing and missing in coming)):
                    later.append(slot)  # someone before it in this pass computes what it needs
                    continue
                self._load(row, slot, held, holders)
                counts.update(reused=held, prefilled=len(tokens) - 1 - held)
                if held < len(tokens) - 1:
                    pieces.append((slot, held, tokens[held:-1]))
                    coming.update((tokens, missing) if missing else (tokens,))
                else:
                    holders.setdefault(tokens, slot)
            self._runner.prefill(pieces)
            for slot, _, _ in pieces:
                holders.setdefault(rows[slot].request.token_ids, slot)
                self._prefixes.save(self._runner.memory, slot, rows[slot].blocks)
            todo = later
        for row in rows[first:]:
            self.release(row.attempt_id)
            self.leave(row)
        return counts

    def _held(self, row: Row, holders: dict[Tokens, int]) -> tuple[int, bytes | None]:
        """How many leading tokens have KV somewhere, and the shared block that is missing next."""
        tokens = row.request.token_ids
        whole = len(tokens) - 1
        if tokens in holders or tokens in self._prompts:
            return whole, None
        kept = self._common(row)
        blocks = self._prefixes.held(row.blocks)
        missing = row.blocks[blocks] if blocks < len(row.blocks) and self._prefixes.shared(row.blocks[blocks]) else None
        return max(kept, blocks * BLOCK), missing if kept <= blocks * BLOCK else None

    def _common(self, row: Row) -> int:
        """How many leading tokens were kept of the attempt's last turn."""
        kept = self._kept.get(row.attempt_id)
        if kept is None:
            return 0
        pairs = zip(kept.tokens, row.request.token_ids[:-1], strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(kept.tokens), len(row.request.token_ids) - 1))

    def _load(self, row: Row, slot: int, held: int, holders: dict[Tokens, int]) -> None:
        """Copies what `_held` found into the slot."""
        memory, tokens = self._runner.memory, row.request.token_ids
        if tokens in holders:
            memory.copy(holders[tokens], slot, held)
        elif tokens in self._prompts:
            memory.load(slot, 0, self._prompts[tokens])
        elif held and held == self._common(row):
            memory.load(slot, 0, self._kept[row.attempt_id].span.first(held))
        elif held:
            self._prefixes.load(memory, slot, row.blocks[: held // BLOCK])

    def keep(self, row: Row, slot: int, rows: list[Row], *, keep: bool) -> None:
        """A turn ends: saves its KV for the attempt's next turn, and its prompt's for those who wait for it."""
        memory, tokens = self._runner.memory, row.request.token_ids
        if keep:
            self._kept[row.attempt_id] = Kept(row.tokens[:-1], memory.save(slot, 0, len(row.tokens) - 1))
        if self._waiting[tokens] and tokens not in self._prompts and len(tokens) > 1:
            others = sum(r.request.token_ids == tokens for r in rows)
            if others == 1:
                self._prompts[tokens] = memory.save(slot, 0, len(tokens) - 1)

    def release(self, attempt_id: str) -> None:
        """Drops what was kept of an attempt."""
        self._kept.pop(attempt_id, None)

    def forget(self) -> None:
        """The weights have changed: drops all KV outside the slots."""
        self._kept.clear()
        self._prompts.clear()
        self._prefixes.clear(sightings=not self._waiting)

    def idle(self) -> None:
        """Nothing is queued or in flight: shared blocks go, unless attempts are between two turns."""
        if not self._kept:
            self._prefixes.clear(sightings=True)

"""Draws tokens by block inverse CDF: the exact fp32 logprob comes out of the same pass.

Noise is a function of the request's key and the token's position, of nothing else: not of the batch, the slot or the clock.
The CDF is summed in two levels, block sums first, then inside the one block that holds the draw, in fp64, so a draw costs
one pass over the vocabulary and no sort.

Shapes: B rows, V vocabulary, K blocks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from posttrain.models.logprobs import restrict
from posttrain.types import Key, Sampling

GREEDY = Sampling(temperature=0.0)
BLOCK = 256
ROWS = 8  # rows worked on together: what fits the second-level cache of a core


def noise(key: Key, position: int) -> float:
    """A uniform number in [0, 1) for the token at ``position`` of the sequence."""
    named = f"{key.seed}\x1f{key.task_id}\x1f{key.visit}\x1f{key.attempt}\x1f{key.turn}\x1f{position}"
    return (int.from_bytes(hashlib.blake2b(named.encode(), digest_size=8).digest()) >> 11) * 2.0**-53


def draw(logits_BV: Tensor, uniform_B: Sequence[float], sampling_B: Sequence[Sampling]) -> tuple[list[int], list[float]]:
    """(token ids, logprobs), the logprobs under exactly the distribution drawn from; at temperature 1 for greedy rows."""
    uniform = torch.tensor(uniform_B, dtype=torch.float64, device=logits_BV.device)
    ids, logprobs = [], []
    for at in range(0, len(sampling_B), ROWS):
        rows = slice(at, at + ROWS)
        chosen, logprob = _draw(_shaped(logits_BV[rows], sampling_B[rows]), uniform[rows], sampling_B[rows])
        ids.append(chosen)
        logprobs.append(logprob)
    return torch.cat(ids).tolist(), torch.cat(logprobs).tolist()


def _shaped(logits_BV: Tensor, sampling_B: Sequence[Sampling]) -> Tensor:
    """A fresh fp32 copy, with temperature and restrictions applied; greedy rows stay as the model is."""

    def column(values: list[float] | list[int], off: float) -> Tensor | None:
        return torch.tensor(values, device=logits_BV.device) if any(v != off for v in values) else None

    drawn = [s if s.temperature else GREEDY for s in sampling_B]
    return restrict(
        logits_BV,
        column([s.temperature or 1.0 for s in drawn], 1.0),
        column([s.top_p for s in drawn], 1.0),
        column([s.top_k for s in drawn], 0),
        column([s.min_p for s in drawn], 0.0),
    )


def _draw(shaped_BV: Tensor, uniform_B: Tensor, sampling_B: Sequence[Sampling]) -> tuple[Tensor, Tensor]:
    """Consumes ``shaped_BV``."""
    num, vocabulary = shaped_BV.shape
    largest = shaped_BV.amax(-1, keepdim=True)
    greedy = [s.temperature == 0 for s in sampling_B]
    best = shaped_BV.argmax(-1) if any(greedy) else None
    mass = shaped_BV.sub_(largest).exp_()
    if vocabulary % BLOCK:
        mass = F.pad(mass, (0, -vocabulary % BLOCK))
    blocks = mass.view(num, -1, BLOCK)
    cumulative = blocks.sum(-1).double().cumsum(-1)
    total = cumulative[:, -1:]
    wanted = torch.minimum(uniform_B[:, None] * total, total * (1 - 2.0**-50))
    block = torch.searchsorted(cumulative, wanted, right=True)
    before = torch.where(block > 0, cumulative.gather(1, (block - 1).clamp_min(0)), 0.0)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, BLOCK))[:, 0].double()
    steps = inside.cumsum(-1)
    # the block's sum was taken in fp32, so what is left may reach its end: stay on a token that has mass
    left = torch.minimum(wanted - before, steps[:, -1:] * (1 - 2.0**-50))
    chosen = (block * BLOCK + torch.searchsorted(steps, left, right=True))[:, 0]
    if best is not None:
        chosen = torch.where(torch.tensor(greedy, device=chosen.device), best, chosen)
    logprob = mass.gather(1, chosen[:, None]).double().log() - total.log()
    return chosen, logprob[:, 0].float()

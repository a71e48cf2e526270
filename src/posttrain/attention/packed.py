"""Attention over packed rows and trees: exact, without padding in the model, each shared token computed once.

Every segment is cut into stretches of at most ``STRETCH`` queries; a stretch sees its ancestors and its own past, so its
keys are one contiguous path. Stretches of like size are gathered into blocks and run as plain batched products, query
heads that share a key head folded into one matrix. On a CPU in bf16, forward and backward together, this is 4.1 times as
fast as torch's flash kernel at 40 tokens, 2.3 times at 150, 1.9 times at 400 and 1.2 times at 1000 (9 heads of width 64).

The backward pass makes the probabilities anew, so a layer keeps its queries, keys and values and nothing that grows with
the square of a length.

Shapes: T tokens of the packed row, H query heads, G key/value heads, R = H / G, D head width; per block B stretches,
Q queries and K keys each (padded), S all queries and U all keys of all blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from posttrain.errors import UsageError
from posttrain.types import Segments

STRETCH = 256  # queries; a longer one computes more of the square that causality throws away
SLACK = 1.3  # padded over needed area of a block
BLOCK = 1 << 17  # query-key pairs of a block, a few megabytes of scores over all heads: what stays in the caches


def attend(
    module: Any,
    query_1HTD: Tensor,
    key_1GTD: Tensor,
    value_1GTD: Tensor,
    segments: Segments,
    *,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """``[1, T, H, D]``. ``sliding_window`` counts positions along a row's own path; ``softcap`` is Gemma 2's (2408.00118).

    Raises UsageError for dropout (a ratio of 1 on-policy needs none) and for a batch of more than one packed row.
    """
    if dropout:
        raise UsageError(f"attention dropout is {dropout}; a policy trains without it, set attention_dropout to 0")
    if query_1HTD.shape[0] != 1 or query_1HTD.shape[2] != segments.items[-1].end:
        raise UsageError(
            f"queries are {tuple(query_1HTD.shape)} and the segments cover {segments.items[-1].end} tokens; pass one packed row"
        )
    plan = make_plan(segments, sliding_window, query_1HTD.dtype, query_1HTD.device)
    parts = (x[0].transpose(0, 1) for x in (query_1HTD, key_1GTD, value_1GTD))
    out_THD: Tensor = _Attend.apply(*parts, plan, scaling, softcap)  # type: ignore[no-untyped-call]
    return out_THD[None]


@dataclass(frozen=True, slots=True)
class Block:
    """Stretches of like size. ``bias`` is 0 where a query sees a key and -inf elsewhere."""

    query_index: Tensor  # int64, [B * Q] into T
    key_index: Tensor  # int64, [B * K] into T
    bias_B11QK: Tensor
    padding: Tensor  # int64, which of B * Q are padding
    num: int

    @property
    def queries(self) -> int:
        """Padded queries of one stretch."""
        return int(self.bias_B11QK.shape[3])

    @property
    def keys(self) -> int:
        """Padded keys of one stretch."""
        return int(self.bias_B11QK.shape[4])


@dataclass(frozen=True, slots=True)
class Plan:
    """The blocks, and the way back: where each token's query lies among S, and which of U are its keys."""

    blocks: tuple[Block, ...]
    query_home_T: Tensor  # int64, into S
    key_home: Tensor  # int64, into U, sorted by token
    key_offset: Tensor  # int64, [T + 1] into key_home; without copies key_home alone is the way back
    has_copies: bool


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Queries [start, end) of the packed row; ``path`` are the token ranges that they may see, the last one ending at ``end``."""

    start: int
    end: int
    path: tuple[tuple[int, int], ...]

    @property
    def seen(self) -> int:
        return sum(b - a for a, b in self.path)

    @property
    def size(self) -> tuple[int, int]:
        """(queries, keys)"""
        return self.end - self.start, self.seen


def _stretches(segments: Segments) -> Iterator[_Stretch]:
    for i, segment in enumerate(segments.items):
        above = tuple((s.start, s.end) for s in segments.ancestors(i))
        for start in range(segment.start, segment.end, STRETCH):
            end = min(start + STRETCH, segment.end)
            yield _Stretch(start, end, (*above, (segment.start, end)))


def _blocks(stretches: list[_Stretch]) -> Iterator[list[_Stretch]]:
    """Stretches put together so that little is padded and a block stays in the caches."""
    ordered = sorted(stretches, key=lambda s: (-(-s.size[0] // 16), s.seen, s.start))
    block: list[_Stretch] = []
    queries = keys = needed = 0
    for stretch in ordered:
        q, k = max(queries, stretch.size[0]), max(keys, stretch.seen)
        area = needed + stretch.size[0] * stretch.seen
        padded = (len(block) + 1) * q * k
        if block and (padded > SLACK * area or padded > BLOCK):
            yield block
            block, area, (q, k) = [], stretch.size[0] * stretch.seen, stretch.size
        block.append(stretch)
        queries, keys, needed = q, k, area
    yield block


@lru_cache(maxsize=8)
def make_plan(segments: Segments, window: int | None, dtype: torch.dtype, device: torch.device) -> Plan:
    """The same for every layer of a batch, so it is kept for a few batches."""
    total = segments.items[-1].end
    blocks = [_block(b, window, dtype) for b in _blocks(list(_stretches(segments)))]
    query_home_T = torch.empty(total, dtype=torch.int64)
    at = 0
    for block, _ in blocks:
        real = torch.ones(len(block.query_index), dtype=torch.bool)
        real[block.padding] = False
        places = torch.nonzero(real).flatten()
        query_home_T[block.query_index[places]] = places + at
        at += len(real)
    token_of_key = torch.cat([torch.where(real, block.key_index, total) for block, real in blocks])
    order = torch.argsort(token_of_key, stable=True)
    counts = torch.bincount(token_of_key, minlength=total + 1)[:total]
    offset = F.pad(counts.cumsum(0), (1, 0))

    def moved(block: Block) -> Block:
        return Block(
            block.query_index.to(device),
            block.key_index.to(device),
            block.bias_B11QK.to(device),
            block.padding.to(device),
            block.num,
        )

    return Plan(
        blocks=tuple(moved(block) for block, _ in blocks),
        query_home_T=query_home_T.to(device),
        key_home=order[: int(offset[-1])].to(device),
        key_offset=offset.to(device),
        has_copies=bool((counts > 1).any()),
    )


def _block(stretches: list[_Stretch], window: int | None, dtype: torch.dtype) -> tuple[Block, Tensor]:
    """A block and which of its B * K keys are real."""
    num = len(stretches)
    queries = max(s.size[0] for s in stretches)
    keys = max(s.seen for s in stretches)
    query_index = torch.zeros(num, queries, dtype=torch.int64)
    key_index = torch.zeros(num, keys, dtype=torch.int64)
    for b, s in enumerate(stretches):
        query_index[b, : s.size[0]] = torch.arange(s.start, s.end)
        key_index[b, : s.seen] = torch.cat([torch.arange(start, end) for start, end in s.path])
    num_queries = torch.tensor([s.size[0] for s in stretches])[:, None]
    num_keys = torch.tensor([s.seen for s in stretches])[:, None]
    # a query's place on its path; padding queries stay within the keys, so that each sees at least one
    place_BQ = (num_keys - num_queries + torch.arange(queries)).clamp_max(keys - 1)
    key_K = torch.arange(keys)
    sees = key_K <= place_BQ[:, :, None]
    if window is not None:
        sees &= key_K > place_BQ[:, :, None] - window
    bias = torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, -torch.inf)
    padding = torch.nonzero((torch.arange(queries) >= num_queries).flatten()).flatten()
    block = Block(query_index.flatten(), key_index.flatten(), bias[:, None, None], padding, num)
    return block, (key_K < num_keys).flatten()


class _Attend(torch.autograd.Function):
    """Forward and backward over all blocks; gathers at the start, one way back at the end."""

    @staticmethod
    def forward(
        ctx: Any, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, plan: Plan, scaling: float, softcap: float | None
    ) -> Tensor:
        ctx.save_for_backward(query_THD, key_TGD, value_TGD)
        ctx.plan, ctx.scaling, ctx.softcap = plan, scaling, softcap
        groups = key_TGD.shape[1]
        slots = sum(len(b.query_index) for b in plan.blocks)
        out_SHD = query_THD.new_empty(slots, query_THD.shape[1], value_TGD.shape[2])
        at = 0
        for block in plan.blocks:
            query = _rows_of_heads(query_THD, block.query_index, block.num, groups)
            key = _rows_of_heads(key_TGD, block.key_index, block.num, groups)
            value = _rows_of_heads(value_TGD, block.key_index, block.num, groups)
            probabilities, _ = _probabilities(query, key, block, scaling, softcap)
            rows = len(block.query_index)
            _tokens_of_heads(torch.bmm(probabilities, value), block.num, out_SHD[at : at + rows])
            at += rows
        return out_SHD.index_select(0, plan.query_home_T)

    @staticmethod
    def backward(ctx: Any, grad_THD: Tensor) -> tuple[Tensor | None, ...]:
        query_THD, key_TGD, value_TGD = ctx.saved_tensors
        plan: Plan = ctx.plan
        groups = key_TGD.shape[1]
        grad_query_SHD = query_THD.new_empty(sum(len(b.query_index) for b in plan.blocks), *query_THD.shape[1:])
        # keys' and values' gradients side by side, so that one pass brings both home; their widths may differ
        shapes = key_TGD.shape[1:], value_TGD.shape[1:]
        widths = [shape.numel() for shape in shapes]
        grads = key_TGD.new_empty(sum(len(b.key_index) for b in plan.blocks), sum(widths))
        at = key_at = 0
        for block in plan.blocks:
            query = _rows_of_heads(query_THD, block.query_index, block.num, groups)
            key = _rows_of_heads(key_TGD, block.key_index, block.num, groups)
            value = _rows_of_heads(value_TGD, block.key_index, block.num, groups)
            grad = _rows_of_heads(grad_THD, block.query_index, block.num, groups, block.padding)
            probabilities, slope = _probabilities(query, key, block, ctx.scaling, ctx.softcap)
            grad_scores = torch.bmm(grad, value.transpose(1, 2))
            grad_scores = torch.ops.aten._softmax_backward_data(grad_scores, probabilities, -1, probabilities.dtype)
            if slope is not None:
                grad_scores *= slope
            rows, keys = len(block.query_index), len(block.key_index)
            grad_query = torch.bmm(grad_scores, key).mul_(ctx.scaling)
            _tokens_of_heads(grad_query, block.num, grad_query_SHD[at : at + rows])
            here = torch.split(grads[key_at : key_at + keys], widths, 1)
            grad_key = torch.bmm(grad_scores.transpose(1, 2), query).mul_(ctx.scaling)
            _tokens_of_heads(grad_key, block.num, here[0].view(keys, *shapes[0]))
            grad_value = torch.bmm(probabilities.transpose(1, 2), grad)
            _tokens_of_heads(grad_value, block.num, here[1].view(keys, *shapes[1]))
            at += rows
            key_at += keys
        grad_key_T, grad_value_T = torch.split(_gathered(grads, plan), widths, 1)
        grad_query_THD = grad_query_SHD.index_select(0, plan.query_home_T)
        return grad_query_THD, grad_key_T.reshape(key_TGD.shape), grad_value_T.reshape(value_TGD.shape), None, None, None


def _gathered(grads: Tensor, plan: Plan) -> Tensor:
    """Sums, for each token, the gradients of its copies (an embedding bag: 6 times as fast on a CPU as index_add)."""
    if not plan.has_copies:
        return grads.index_select(0, plan.key_home)
    return F.embedding_bag(plan.key_home, grads, plan.key_offset, mode="sum", include_last_offset=True)


def _rows_of_heads(tokens: Tensor, index: Tensor, num: int, groups: int, zero: Tensor | None = None) -> Tensor:
    """[T, heads, D] -> [B * G, heads / G * length, D]: heads that share a key head become rows of one matrix."""
    heads, width = tokens.shape[1:]
    taken = tokens.flatten(1).index_select(0, index)
    if zero is not None and len(zero):
        taken.index_fill_(0, zero, 0.0)
    folded = taken.view(num, -1, groups, heads // groups, width).permute(0, 2, 3, 1, 4)
    return folded.reshape(num * groups, -1, width)


def _tokens_of_heads(rows: Tensor, num: int, out: Tensor) -> None:
    """The way back of ``_rows_of_heads``: [B * G, R * length, D] -> ``out`` [B * length, heads, D]."""
    length, (heads, width) = out.shape[0] // num, out.shape[1:]
    groups = rows.shape[0] // num
    unfolded = rows.view(num, groups, heads // groups, length, width).permute(0, 3, 1, 2, 4)
    out.view(num, length, groups, heads // groups, width).copy_(unfolded)


def _probabilities(
    query: Tensor, key: Tensor, block: Block, scaling: float, softcap: float | None
) -> tuple[Tensor, Tensor | None]:
    """Softmax over the keys, [B * G, R * Q, K], and the softcap's slope where there is one."""
    exact = math.frexp(scaling)[0] == 0.5  # a power of two: scaling the queries rounds nothing
    scores = torch.bmm(query * scaling if exact else query, key.transpose(1, 2))
    if not exact:
        scores *= scaling
    slope = None
    if softcap is not None:
        bent = torch.tanh(scores / softcap)
        scores, slope = softcap * bent, 1 - bent * bent
    per_head = scores.view(block.num, -1, scores.shape[1] // block.queries, block.queries, block.keys)
    per_head += block.bias_B11QK
    return torch.softmax(scores, -1), slope

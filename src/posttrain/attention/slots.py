"""Attention over contiguous KV slots, the engine's half of the `posttrain` attention.

One slot is one sequence in flight. Keys lie transposed (``[..., D, S]``): with queries folded to the heads they belong to,
both products of a decode step then read rows of memory as they lie. On a CPU both run as weighted sums of rows
(``embedding_bag``): a batched matmul packs the whole KV anew for the three query rows that meet it, and takes twice as long
(`docs/experiments.md`).

Shapes: L layers, B slots, n rows in use, S positions, G key/value heads, M query heads for each of them, H = G * M,
D width of a query and key, E width of a value, T tokens of a packed row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from posttrain.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

SHORT = 256  # up to this many tokens a bf16 prompt is attended to by plain matmuls, 1.3x faster than the fused kernel
BAGGED_QUERIES = 8  # with more queries per key/value head than this, a matmul's packing pays
SLACK = 0.75  # slots shrink when less than this share of their length is needed
GROWTH = 4  # a new buffer leaves room to grow by one in so many; on a CPU, memory that nobody touched costs nothing


def bucket(needed: int, least: int = 32) -> int:
    """The slot length that serves ``needed`` positions: at most an eighth more, in multiples of ``least``."""
    step = max(least, (1 << (needed - 1).bit_length()) // 16)
    return -(-needed // step) * step


@dataclass(frozen=True, slots=True)
class Shape:
    """Heads and widths of every attention layer: G, M, D, E."""

    kv_heads: int
    queries_per_head: int
    key_width: int
    value_width: int


@dataclass(slots=True)
class Probe:
    """Given as ``slots=`` to one forward, learns the shape of each layer; attends to nothing."""

    shapes: dict[int, Shape] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """KV of ``num`` tokens of some sequence, outside any slot: keys ``[L, G, D, num]``, values ``[L, G, num, E]``."""

    keys: Tensor
    values: Tensor

    @property
    def num(self) -> int:
        return int(self.values.shape[2])

    def first(self, num: int) -> Span:
        """Its first ``num`` tokens, not copied."""
        return Span(self.keys[..., :num], self.values[:, :, :num])


class Memory:
    """The slots: for each layer keys ``[B, G, D, S]`` and values ``[B, G, S, E]``, as long as the longest sequence needs.

    A batched matmul copies whatever does not lie densely, so a step reads whole slots; a change of length moves the KV
    instead, layer by layer into the buffer that the layer before left: memory new from the system costs more than the move.
    """

    def __init__(self, num_layers: int, shape: Shape, dtype: torch.dtype, device: torch.device) -> None:
        self.num_layers, self.shape, self.dtype, self.device = num_layers, shape, dtype, device
        self.clear()

    def clear(self) -> None:
        """Gives all slots back to the system."""
        self.num_slots = self.length = 0
        self.keys: list[Tensor] = [torch.empty(0)] * self.num_layers
        self.values: list[Tensor] = [torch.empty(0)] * self.num_layers
        none = torch.empty(0, dtype=self.dtype, device=self.device)
        self._buffers, self._spare = [none] * (2 * self.num_layers), none

    def _moved(self, buffer: int, old: Tensor | None, shape: tuple[int, ...], kept: tuple[slice, ...]) -> Tensor:
        """A tensor of the new shape with ``old[kept]`` in its place; ``old``'s buffer becomes the spare one."""
        size = math.prod(shape)
        if self._spare.numel() < size:
            room = size // GROWTH if self.device.type == "cpu" else 0
            self._spare = torch.empty(size + room, dtype=self.dtype, device=self.device)
        self._buffers[buffer], self._spare = self._spare, self._buffers[buffer]
        # zeros elsewhere: masked positions meet a weight of 0, and 0 * nan would still be nan
        new = self._buffers[buffer][:size].view(shape).zero_()
        if old is not None:
            new[kept] = old[kept]
        return new

    def reserve(self, num_slots: int, length: int, in_use: int) -> None:
        """Room for so many slots of so many positions; the first ``in_use`` slots keep what lies in it."""
        if num_slots <= self.num_slots and SLACK * self.length <= length <= self.length:
            return
        slots = bucket(num_slots, 4)  # no more than are asked for: a move pays for every slot, used or not
        if slots <= self.num_slots and bucket(length) == self.length:
            return
        s, used, kept = self.shape, slice(in_use), slice(min(self.length, bucket(length)))
        self.num_slots, self.length = slots, bucket(length)
        keys = (slots, s.kv_heads, s.key_width, self.length), (used, slice(None), slice(None), kept)
        values = (slots, s.kv_heads, self.length, s.value_width), (used, slice(None), kept)
        for layer in range(self.num_layers):  # layer by layer, so that old and new never exist twice as a whole
            self.keys[layer] = self._moved(2 * layer, self.keys[layer] if in_use else None, *keys)
            self.values[layer] = self._moved(2 * layer + 1, self.values[layer] if in_use else None, *values)

    def copy(self, source: int, target: int, num: int) -> None:
        """The first ``num`` positions of one slot into another."""
        for keys, values in zip(self.keys, self.values, strict=True):
            keys[target, :, :, :num] = keys[source, :, :, :num]
            values[target, :, :num] = values[source, :, :num]

    def save(self, slot: int, start: int, end: int) -> Span:
        """A copy of positions [start, end) of a slot."""
        return Span(
            torch.stack([keys[slot, :, :, start:end] for keys in self.keys]),
            torch.stack([values[slot, :, start:end] for values in self.values]),
        )

    def load(self, slot: int, start: int, span: Span) -> None:
        """Puts a span at position ``start`` of a slot."""
        end = start + span.num
        for layer in range(self.num_layers):
            self.keys[layer][slot, :, :, start:end] = span.keys[layer]
            self.values[layer][slot, :, start:end] = span.values[layer]


@dataclass(frozen=True, slots=True)
class Chunk:
    """``num`` tokens of a packed row that continue slot ``slot`` at position ``start``; slot -1: a sequence not stored."""

    slot: int
    start: int
    num: int


class Filled(Exception):
    """The last layer's keys and values are stored; what the forward would compute after them, nobody reads."""


class Prefill:
    """Many sequences in one packed forward, no padding; each sees what its slot holds before it, and itself causally.

    When every chunk is stored, the forward ends with ``Filled`` as soon as the last layer's slots are filled.
    """

    def __init__(self, memory: Memory, chunks: tuple[Chunk, ...]) -> None:
        self.memory, self.chunks = memory, chunks
        self.last_layer = memory.num_layers - 1 if all(c.slot >= 0 for c in chunks) else -1
        self._masks: dict[tuple[int, int, int | None], Tensor] = {}
        self._biases: dict[int, Tensor] = {}

    def bias(self, num: int) -> Tensor:
        """``[num, num]``, 0 where a query of a whole prompt may look and -inf elsewhere."""
        if num not in self._biases:
            full = torch.full((num, num), -math.inf, dtype=self.memory.dtype, device=self.memory.device)
            self._biases[num] = full.triu_(1)
        return self._biases[num]

    def mask(self, start: int, num: int, window: int | None) -> Tensor:
        """``[num, start + num]``, True where a query may look."""
        key = (start, num, window)
        if key not in self._masks:
            query = torch.arange(start, start + num, device=self.memory.device)[:, None]
            seen = torch.arange(start + num, device=self.memory.device)[None]
            allowed = seen <= query
            self._masks[key] = allowed if window is None else allowed & (seen > query - window)
        return self._masks[key]


class Decode:
    """One new token in each of the first n slots, at ``positions``."""

    def __init__(self, memory: Memory, positions: list[int]) -> None:
        self.memory, self.num = memory, len(positions)
        self.slots_n = torch.arange(self.num, device=memory.device)
        self.positions_n = torch.tensor(positions, device=memory.device)
        self._biases: dict[int | None, Tensor] = {}
        s = memory.shape
        self.bagged = memory.device.type == "cpu" and s.queries_per_head <= BAGGED_QUERIES
        if self.bagged:
            self.key_bags = self._bags(s.key_width)
            self.value_bags = self._bags(memory.length)

    def _bags(self, rows: int) -> tuple[Tensor, Tensor]:
        """Indices and offsets of bags: each of a head's M queries sums over the ``rows`` rows of that head's matrix."""
        s = self.memory.shape
        heads = self.num * s.kv_heads
        table = torch.arange(heads * rows, dtype=torch.int32).view(heads, 1, rows)
        offsets = torch.arange(heads * s.queries_per_head, dtype=torch.int32) * rows
        return table.expand(heads, s.queries_per_head, rows).flatten(), offsets

    def bias(self, window: int | None) -> Tensor:
        """``[n, 1, 1, S]``, 0 where the token may look and -inf elsewhere."""
        if window not in self._biases:
            seen = torch.arange(self.memory.length, device=self.memory.device)[None]
            hidden = seen > self.positions_n[:, None]
            if window is not None:
                hidden |= seen <= self.positions_n[:, None] - window
            bias = torch.zeros(hidden.shape, dtype=self.memory.dtype, device=self.memory.device).masked_fill_(hidden, -math.inf)
            self._biases[window] = bias[:, None, None]
        return self._biases[window]

    def times_keys(self, query: Tensor, keys: Tensor) -> Tensor:
        """``[n*G, M, D]`` and ``[n, G, D, S]`` to ``[n, G, M, S]``."""
        s, length = self.memory.shape, self.memory.length
        if self.bagged:
            out = _sum_rows(keys.view(-1, length), query, self.key_bags)
        else:
            out = torch.bmm(query, keys.view(-1, s.key_width, length))
        return out.view(self.num, s.kv_heads, s.queries_per_head, length)

    def times_values(self, weights: Tensor, values: Tensor) -> Tensor:
        """``[n, G, M, S]`` and ``[n, G, S, E]`` to ``[1, n, H, E]``."""
        s, length = self.memory.shape, self.memory.length
        if self.bagged:
            out = _sum_rows(values.view(-1, s.value_width), weights, self.value_bags)
        else:
            out = torch.bmm(weights.view(-1, s.queries_per_head, length), values.view(-1, length, s.value_width))
        return out.view(1, self.num, s.kv_heads * s.queries_per_head, s.value_width)


def _sum_rows(table: Tensor, weights: Tensor, bags: tuple[Tensor, Tensor]) -> Tensor:
    """Weighted sums of the table's rows, accumulated in fp32."""
    return torch.embedding_bag(table, *bags, False, 0, False, weights.view(-1), False)[0]


Slots = Probe | Prefill | Decode


def attend(
    module: nn.Module,
    query_1HTD: Tensor,
    key_1GTD: Tensor,
    value_1GTE: Tensor,
    slots: Slots,
    *,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Stores the new keys and values of this layer in their slots and attends: ``[1, T, H, E]``."""
    layer: int = module.layer_idx  # type: ignore[assignment]
    if isinstance(slots, Decode):
        return _decode(layer, query_1HTD, key_1GTD, value_1GTE, slots, scaling, sliding_window, softcap)
    if isinstance(slots, Prefill):
        return _prefill(layer, query_1HTD, key_1GTD, value_1GTE, slots, scaling, sliding_window, softcap)
    _, heads, tokens, width = query_1HTD.shape
    groups, value_width = key_1GTD.shape[1], value_1GTE.shape[3]
    slots.shapes[layer] = Shape(groups, heads // groups, width, value_width)
    return query_1HTD.new_zeros(1, tokens, heads, value_width)


def _decode(
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slots: Decode,
    scaling: float,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    n, s = slots.num, slots.memory.shape
    keys, values = slots.memory.keys[layer], slots.memory.values[layer]
    keys[slots.slots_n, :, :, slots.positions_n] = key[0].transpose(0, 1)
    values[slots.slots_n, :, slots.positions_n] = value[0].transpose(0, 1)
    folded = (query[0].transpose(0, 1) * scaling).reshape(n * s.kv_heads, s.queries_per_head, s.key_width)
    scores = slots.times_keys(folded, keys[:n])
    if softcap is not None:
        scores = (torch.tanh(scores.float() / softcap) * softcap).to(query.dtype)
    return slots.times_values(torch.softmax(scores.add_(slots.bias(window)), -1), values[:n])


def _prefill(
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slots: Prefill,
    scaling: float,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    keys, values = slots.memory.keys[layer], slots.memory.values[layer]
    repeat = slots.memory.shape.queries_per_head
    outs, at = [], 0
    for chunk in slots.chunks:
        end, stop = at + chunk.num, chunk.start + chunk.num
        q, k, v = query[:, :, at:end], key[:, :, at:end], value[:, :, at:end]
        at = end
        if chunk.slot >= 0:
            keys[chunk.slot, :, :, chunk.start : stop] = k[0].transpose(1, 2)
            values[chunk.slot, :, chunk.start : stop] = v[0]
            if layer == slots.last_layer:
                continue
            if chunk.start:
                k, v = keys[None, chunk.slot, :, :, :stop].transpose(2, 3), values[None, chunk.slot, :, :stop]
        plain = chunk.start == 0 and (window is None or window >= chunk.num)
        if plain and softcap is None and chunk.num <= SHORT and q.dtype == torch.bfloat16 and q.device.type == "cpu":
            outs.append(_short(q[0], k[0], v[0], slots.bias(chunk.num), scaling))
            continue
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        if softcap is not None:
            scores = torch.tanh(q.float() @ k.float().transpose(2, 3) * (scaling / softcap)) * softcap
            scores = scores.masked_fill(~slots.mask(chunk.start, chunk.num, window), -math.inf)
            out = torch.softmax(scores, -1).to(v.dtype) @ v
        elif plain:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling)
        else:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=slots.mask(chunk.start, chunk.num, window), scale=scaling)
        outs.append(out.transpose(1, 2))
    if layer == slots.last_layer:
        raise Filled
    return torch.cat(outs, 1)


def _short(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scaling: float) -> Tensor:
    """Causal attention of one short sequence, ``[H, T, D]`` to ``[1, T, H, E]``, queries folded to their head."""
    heads, num, width = query.shape
    groups = key.shape[0]
    scores = torch.bmm((query * scaling).reshape(groups, -1, width), key.transpose(1, 2))
    weights = torch.softmax(scores.view(heads, num, num).add_(bias), -1)
    return torch.bmm(weights.view(groups, -1, num), value).view(1, heads, num, -1).transpose(1, 2)


def memory_for(model: Any, decoder: Any) -> Memory:
    """Empty slots that fit a model, found by one tiny forward. Raises UsageError for layers that slots cannot serve."""
    probe = Probe()
    config = model.config.get_text_config()
    if getattr(config, "attention_chunk_size", None):
        raise UsageError(
            f"{type(model).__name__} attends in chunks of {config.attention_chunk_size}, which the native engine does not; "
            "use another model"
        )
    weight = next(model.parameters())
    ids = torch.zeros(1, 4, dtype=torch.long, device=weight.device)
    decoder(input_ids=ids, position_ids=torch.arange(4, device=weight.device)[None], use_cache=False, slots=probe)
    missing = [i for i in range(config.num_hidden_layers) if i not in probe.shapes]
    if missing or len(set(probe.shapes.values())) != 1:
        why = f"layers {missing} keep no keys and values" if missing else "its layers differ in shape"
        raise UsageError(f"the native engine cannot sample from {type(model).__name__}: {why}; use another model")
    return Memory(len(probe.shapes), probe.shapes[0], weight.dtype, weight.device)

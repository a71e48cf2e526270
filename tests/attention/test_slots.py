"""Slots against a plain causal attention: prefill, decode, continuation, windows, caps; and what memory keeps."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from posttrain.attention.slots import Chunk, Decode, Filled, Memory, Prefill, Shape, attend, bucket

G, M, D = 2, 3, 8
LAYER: Any = SimpleNamespace(layer_idx=0)


def reference(query: Tensor, key: Tensor, value: Tensor, window: int | None, softcap: float | None) -> Tensor:
    """[H, T, D] x [G, T, D] -> [T, H, D], written out."""
    key, value = key.repeat_interleave(M, 0), value.repeat_interleave(M, 0)
    scores = query @ key.transpose(1, 2) * D**-0.5
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    at = torch.arange(query.shape[1])
    hidden = at[None] > at[:, None]
    if window is not None:
        hidden |= at[None] <= at[:, None] - window
    return (torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ value).transpose(0, 1)


def fill(memory: Memory) -> None:
    for part in (*memory.keys, *memory.values):
        part.normal_()


def random_sequence(num: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(heads, num, D, generator=made) for heads in (G * M, G, G))  # type: ignore[return-value]


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_packed_prefill_then_continuation_then_decode_equal_one_causal_pass(window: int | None, softcap: float | None) -> None:
    options: dict[str, Any] = {"scaling": D**-0.5, "sliding_window": window, "softcap": softcap}
    lengths = (9, 14, 40)
    sequences = [random_sequence(n, seed) for seed, n in enumerate(lengths)]
    expected = [reference(*s, window, softcap) for s in sequences]
    memory = Memory(2, Shape(G, M, D, D), torch.float32, torch.device("cpu"))
    memory.reserve(3, 40, 0)

    def packed(parts: list[tuple[int, int, int]]) -> Tensor:
        """parts: (sequence, first, end); sequence i lies in slot i."""
        q, k, v = (torch.cat([sequences[i][j][:, a:b] for i, a, b in parts], 1)[None] for j in range(3))
        plan = Prefill(memory, tuple(Chunk(i, a, b - a) for i, a, b in parts))
        return attend(LAYER, q, k, v, plan, **options)[0]

    first = [(0, 0, 8), (1, 0, 4), (2, 0, 1)]
    second = [(1, 4, 13), (2, 1, 39)]
    for parts in (first, second):
        out = packed(parts)
        want = torch.cat([expected[i][a:b] for i, a, b in parts])
        assert torch.allclose(out, want, atol=1e-5)
    q, k, v = (torch.cat([s[j][:, -1:] for s in sequences], 1)[None] for j in range(3))
    out = attend(LAYER, q, k, v, Decode(memory, [n - 1 for n in lengths]), **options)[0]
    assert torch.allclose(out, torch.stack([e[-1] for e in expected]), atol=1e-5)


def test_a_stored_prefill_ends_once_the_last_layer_is_filled() -> None:
    memory = Memory(2, Shape(G, M, D, D), torch.float32, torch.device("cpu"))
    memory.reserve(2, 40, 0)
    q, k, v = (part[None] for part in random_sequence(5, 0))
    last: Any = SimpleNamespace(layer_idx=1)
    assert attend(last, q, k, v, Prefill(memory, (Chunk(-1, 0, 5),)), scaling=1.0).shape == (1, 5, G * M, D)
    with pytest.raises(Filled):
        attend(last, q, k, v, Prefill(memory, (Chunk(1, 0, 5),)), scaling=1.0)
    assert torch.equal(memory.keys[1][1, :, :, :5], k[0].transpose(1, 2))
    assert torch.equal(memory.values[1][1, :, :5], v[0])


def test_memory_grows_and_shrinks_without_losing_what_is_in_use() -> None:
    memory = Memory(2, Shape(G, M, D, D), torch.float32, torch.device("cpu"))
    memory.reserve(2, 20, 0)
    fill(memory)
    keys, values = (torch.stack(part) for part in (memory.keys, memory.values))
    keys, values = keys[:, :2, :, :, :20], values[:, :2, :, :20]
    for slots, length in ((2, 500), (30, 501), (30, 33), (2, 20)):
        memory.reserve(slots, length, 2)
        assert memory.num_slots >= slots
        assert length <= memory.length <= bucket(length)
        assert torch.equal(torch.stack(memory.keys)[:, :2, :, :, :20], keys)
        assert torch.equal(torch.stack(memory.values)[:, :2, :, :20], values)


def test_a_longer_sequence_does_not_move_slots_that_nobody_uses() -> None:
    memory = Memory(2, Shape(G, M, D, D), torch.float32, torch.device("cpu"))
    memory.reserve(64, 40, 0)
    assert memory.num_slots == 64
    memory.reserve(4, 40, 2)
    assert memory.num_slots == 64  # fits as it is: nothing moves
    memory.reserve(4, 80, 2)
    assert (memory.num_slots, memory.length) == (4, 96)
    assert sum(buffer.numel() for buffer in memory._buffers) <= 2 * 2 * 64 * 64 * G * D * 5 // 4  # buffers serve again


def test_a_span_comes_back_at_another_place() -> None:
    memory = Memory(2, Shape(G, M, D, D), torch.float32, torch.device("cpu"))
    memory.reserve(2, 64, 0)
    fill(memory)
    span = memory.save(0, 3, 10)
    assert span.num == 7
    memory.load(1, 20, span.first(5))
    for keys, values in zip(memory.keys, memory.values, strict=True):
        assert torch.equal(keys[1, :, :, 20:25], keys[0, :, :, 3:8])
        assert torch.equal(values[1, :, 20:25], values[0, :, 3:8])
    memory.copy(0, 1, 64)
    assert all(torch.equal(part[0], part[1]) for part in (*memory.keys, *memory.values))


@pytest.mark.parametrize("length", [1, 31, 32, 33, 255, 257, 511, 2048, 5000])
def test_buckets_waste_at_most_an_eighth(length: int) -> None:
    assert length <= bucket(length) <= max(length * 1.13, length + 31)
    assert bucket(length) % 32 == 0

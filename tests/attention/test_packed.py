"""Packed and shared-prefix attention equal attention over separate rows: outputs and gradients (guarantee A14)."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from posttrain.attention import packed
from posttrain.errors import UsageError
from posttrain.types import Segment, Segments

D = 16
SCALING = 0.3  # not a power of two, on purpose; 0.25 is tried as well


def forest(seed: int, *, longest: int = 40) -> Segments:
    """Random trees up to three levels deep, some segments of one token."""
    draw = random.Random(seed)
    items: list[Segment] = []
    at = 0

    def place(parent: int) -> int:
        nonlocal at
        length = draw.randint(1, longest)
        items.append(Segment(at, at + length, parent))
        at += length
        return len(items) - 1

    for _ in range(4):
        root = place(-1)
        for _ in range(draw.randint(0, 4)):
            child = place(root)
            for _ in range(draw.randint(0, 2)):
                place(child)
    return Segments(tuple(items))


def by_rows(
    query_1HTD: Tensor, key: Tensor, value: Tensor, segments: Segments, scaling: float, window: int | None, softcap: float | None
) -> Tensor:
    """The textbook: each segment with its ancestors, softmax over what it may see."""
    groups = query_1HTD.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    out = torch.zeros_like(query_1HTD).transpose(1, 2).contiguous()
    for i, segment in enumerate(segments.items):
        path = [t for s in segments.ancestors(i) for t in range(s.start, s.end)]
        for t in range(segment.start, segment.end):
            path.append(t)
            seen = path if window is None else path[-window:]
            scores = torch.einsum("hd,hkd->hk", query_1HTD[0, :, t], key[0][:, seen]) * scaling
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            out[0, t] = torch.einsum("hk,hkd->hd", scores.softmax(-1), value[0][:, seen])
    return out


def tensors(segments: Segments, heads: int, groups: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    total = segments.items[-1].end
    return [torch.randn(1, h, total, D, dtype=dtype, generator=generator).requires_grad_() for h in (heads, groups, groups)]


@pytest.mark.parametrize("heads,groups", [(6, 2), (4, 4), (3, 1)])
@pytest.mark.parametrize(
    "scaling,window,softcap", [(SCALING, None, None), (0.25, None, None), (SCALING, 7, None), (0.25, 20, 5.0)]
)
def test_equals_separate_rows(heads: int, groups: int, scaling: float, window: int | None, softcap: float | None) -> None:
    for seed in range(3):
        segments = forest(seed)
        inputs = tensors(segments, heads, groups, torch.float32)
        got = packed.attend(None, *inputs, segments, scaling=scaling, sliding_window=window, softcap=softcap)
        wanted = by_rows(*inputs, segments, scaling, window, softcap)
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
        seed_grad = torch.randn(got.shape, generator=torch.Generator().manual_seed(2))
        for mine, theirs in zip(
            torch.autograd.grad(got, inputs, seed_grad), torch.autograd.grad(wanted, inputs, seed_grad), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=2e-6)


def test_long_rows_are_cut_into_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "STRETCH", 16)
    packed.make_plan.cache_clear()
    segments = forest(5, longest=90)
    inputs = tensors(segments, 4, 2, torch.float64)
    got = packed.attend(None, *inputs, segments, scaling=SCALING)
    wanted = by_rows(*inputs, segments, SCALING, None, None)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-13)
    grads = [torch.autograd.grad(x.square().sum(), inputs) for x in (got, wanted)]
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-10, atol=1e-11)
    packed.make_plan.cache_clear()


def test_values_may_be_narrower_than_keys() -> None:
    segments = forest(2)
    query, key, value = tensors(segments, 4, 2, torch.float64)
    value = value[..., :5].detach().requires_grad_()
    got = packed.attend(None, query, key, value, segments, scaling=SCALING)
    padded = by_rows(query, key, torch.nn.functional.pad(value, (0, D - 5)), segments, SCALING, None, None)
    torch.testing.assert_close(got, padded[..., :5], rtol=1e-12, atol=1e-13)
    grads = [torch.autograd.grad(x.square().sum(), (query, key, value)) for x in (got, padded)]
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-10, atol=1e-11)


def test_order_of_children_does_not_matter_for_a_parent_that_is_not_next_to_them() -> None:
    """Breadth-first segments: descendants need not follow their ancestor directly."""
    segments = Segments((Segment(0, 5), Segment(5, 9), Segment(9, 12, 0), Segment(12, 20, 1), Segment(20, 23, 0)))
    inputs = tensors(segments, 2, 1, torch.float64)
    torch.testing.assert_close(
        packed.attend(None, *inputs, segments, scaling=SCALING), by_rows(*inputs, segments, SCALING, None, None)
    )


def test_bf16_stays_near_fp32() -> None:
    segments = forest(3)
    inputs = tensors(segments, 6, 2, torch.bfloat16)
    got = packed.attend(None, *inputs, segments, scaling=0.25)
    wanted = by_rows(*(x.float() for x in inputs), segments, 0.25, None, None)
    assert (got.float() - wanted).abs().mean() < 5e-3


def test_refuses_what_it_cannot_compute() -> None:
    segments = forest(0)
    inputs = tensors(segments, 2, 2, torch.float32)
    with pytest.raises(UsageError, match="dropout"):
        packed.attend(None, *inputs, segments, scaling=1.0, dropout=0.1)
    with pytest.raises(UsageError, match="one packed row"):
        packed.attend(None, *(x[:, :, :-1] for x in inputs), segments, scaling=1.0)

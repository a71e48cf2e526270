"""Chunked logprobs against the plain formula, their gradient, and the restricted distributions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from posttrain.models.logprobs import backbone, full_logits, head, head_options, restrict, score_positions


def make(n: int = 37, v: int = 211, d: int = 16, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, weight, bias, targets."""
    g = torch.Generator().manual_seed(n)
    hidden = torch.randn(n, d, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(v, d, generator=g, dtype=torch.float64).mul(0.7).to(dtype).requires_grad_()
    bias = torch.randn(v, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
    return hidden, weight, bias, torch.randint(v, (n,), generator=g)


def plain(hidden: Tensor, weight: Tensor, target: Tensor, t: Tensor, bias: Tensor, softcap: float, scale: float) -> Tensor:
    """The textbook, with whole logits and autograd."""
    logits = (hidden @ weight.T + bias) * scale
    logits = softcap * torch.tanh(logits / softcap) / t[:, None]
    return logits.log_softmax(-1).gather(1, target[:, None])[:, 0]


@pytest.mark.parametrize("chunk", [1, 5, 16, 1000])
def test_values_and_gradients_equal_the_textbook(chunk: int) -> None:
    hidden, weight, bias, target = make()
    t = torch.linspace(0.3, 2.0, len(target), dtype=torch.float64)
    g = torch.randn(len(target), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    g[::3] = 0  # rows without a gradient are skipped
    want = plain(hidden, weight, target, t, bias, 5.0, 0.8)
    want_grads = torch.autograd.grad(want @ g, (hidden, weight, bias))
    got, none = score_positions(hidden, weight, target, temperature_N=t, bias=bias, softcap=5.0, scale=0.8, chunk=chunk)
    assert none is None
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)  # temperatures pass through float32
    for mine, theirs in zip(torch.autograd.grad(got @ g, (hidden, weight, bias)), want_grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


def test_finite_differences() -> None:
    hidden, weight, _, target = make(n=5, v=13, d=4)

    def f(h: Tensor, w: Tensor) -> Tensor:
        return score_positions(h, w, target, chunk=2)[0]

    assert torch.autograd.gradcheck(f, (hidden, weight))


def test_no_rows_give_a_zero_gradient() -> None:
    hidden, weight, _, target = make()
    got, entropy = score_positions(hidden[:0], weight, target[:0], entropy=True)
    assert got.shape == (0,) and entropy is not None and entropy.shape == (0,)
    (grad,) = torch.autograd.grad(got.sum(), weight)
    assert not grad.any()


def test_entropy_has_no_gradient_and_is_right() -> None:
    hidden, weight, _, target = make()
    top_k = torch.full((len(target),), 7)
    _, entropy = score_positions(hidden, weight, target, entropy=True, chunk=9)
    logp = (hidden @ weight.T).log_softmax(-1)
    assert entropy is not None and not entropy.requires_grad
    torch.testing.assert_close(entropy, -(logp.exp() * logp).sum(-1))
    best = (hidden @ weight.T).argmax(-1)
    _, entropy = score_positions(hidden, weight, best, entropy=True, chunk=9, top_k_N=top_k)
    logp = (hidden @ weight.T).topk(7).values.log_softmax(-1)
    assert entropy is not None
    torch.testing.assert_close(entropy, -(logp.exp() * logp).sum(-1), rtol=1e-5, atol=1e-5)


def test_bf16_agrees_with_float32_of_the_same_weights() -> None:
    hidden, weight, _, target = make(n=64, v=500, dtype=torch.bfloat16)
    got, _ = score_positions(hidden, weight, target, chunk=13)
    assert got.dtype == torch.float32
    wide, _ = score_positions(hidden.detach().float().requires_grad_(), weight.detach().float(), target)
    assert (got - wide).abs().max() < 0.08
    grad_h, grad_w = torch.autograd.grad(got.sum(), (hidden, weight))
    assert grad_h.dtype == grad_w.dtype == torch.bfloat16
    h32, w32 = hidden.detach().float().requires_grad_(), weight.detach().float().requires_grad_()
    want_h, want_w = torch.autograd.grad(score_positions(h32, w32, target)[0].sum(), (h32, w32))
    assert (grad_h.float() - want_h).norm() / want_h.norm() < 0.02
    assert (grad_w.float() - want_w).norm() / want_w.norm() < 0.02


def slow_restrict(row: list[float], temperature: float, top_p: float, top_k: int, min_p: float) -> set[int]:
    """The allowed tokens of one row, by the definition, one token at a time."""
    z = torch.tensor(row, dtype=torch.float64) / (temperature or 1.0)
    allowed = set(range(len(row)))
    if min_p > 0:
        p = z.softmax(-1)
        allowed = {i for i in allowed if p[i] >= min_p * p.max()}
    if top_k:
        edge = sorted((float(z[i]) for i in allowed), reverse=True)[:top_k][-1]
        allowed = {i for i in allowed if z[i] >= edge}
    if top_p < 1:
        order = sorted(allowed, key=lambda i: -float(z[i]))
        p = torch.tensor([float(z[i]) for i in order], dtype=torch.float64).softmax(-1)
        mass, last = 0.0, order[-1]
        for i, share in zip(order, p.tolist(), strict=True):
            mass += share
            if mass >= top_p:
                last = i
                break
        allowed = {i for i in allowed if z[i] >= z[last]}
    return allowed


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_restrict_is_the_definition(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 4))
    # A grid of values makes ties; odd fractions keep the float32 mass off the edges.
    value = st.integers(-12, 12).map(lambda x: x / 4)
    logits = [data.draw(st.lists(value, min_size=9, max_size=9)) for _ in range(rows)]
    limits = [
        (
            data.draw(st.sampled_from([0.0, 0.61, 1.0, 1.7])),
            data.draw(st.sampled_from([0.1003, 0.5009, 0.9007, 1.0])),
            data.draw(st.sampled_from([0, 1, 4, 9, 50])),
            data.draw(st.sampled_from([0.0, 0.0503, 0.4007])),
        )
        for _ in range(rows)
    ]
    t, p, k, m = (torch.tensor(column) for column in zip(*limits, strict=True))
    got = restrict(torch.tensor(logits), t, p, k, m)
    for i in range(rows):
        assert set(torch.nonzero(got[i] > -torch.inf).flatten().tolist()) == slow_restrict(logits[i], *limits[i])
        finite = got[i] > -torch.inf
        torch.testing.assert_close(got[i][finite], (torch.tensor(logits[i]) / (limits[i][0] or 1.0))[finite])


def test_a_flat_nucleus_larger_than_the_candidates_is_found() -> None:
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0)) * 0.1
    got = restrict(logits, None, torch.tensor([0.9, 0.5, 1.0]), None, None)
    kept = (got > -torch.inf).sum(-1).tolist()
    probs = logits.softmax(-1).sort(descending=True).values.cumsum(-1)
    assert kept == [int((probs[0] < 0.9).sum()) + 1, int((probs[1] < 0.5).sum()) + 1, 5000]
    alone = restrict(logits[1:2], None, torch.tensor([0.5]), None, None)
    assert torch.equal(alone[0], got[1])  # rows do not affect each other


def test_restricted_scores_are_those_of_the_restricted_distribution() -> None:
    """A2: what an engine samples from, and what the trainer differentiates, is one distribution."""
    hidden, weight, _, _ = make(dtype=torch.float32)
    n = len(hidden)
    t, p = torch.full((n,), 0.6), torch.full((n,), 0.9)
    k, m = torch.full((n,), 20), torch.full((n,), 0.02)
    logits = restrict(full_logits(hidden, weight), t, p, k, m)
    sampled = torch.multinomial(logits.softmax(-1), 1, generator=torch.Generator().manual_seed(0))[:, 0]
    want = logits.log_softmax(-1).gather(1, sampled[:, None])[:, 0]
    options = {"temperature_N": t, "top_p_N": p, "top_k_N": k, "min_p_N": m}
    got, _ = score_positions(hidden, weight, sampled, chunk=8, **options)
    torch.testing.assert_close(got, want)
    for mine, theirs in zip(
        torch.autograd.grad(got.sum(), (hidden, weight)), torch.autograd.grad(want.sum(), (hidden, weight)), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_target_outside_the_set_stays_finite() -> None:
    hidden, weight, _, _ = make(dtype=torch.float32)
    worst = full_logits(hidden, weight).argmin(-1)
    got, _ = score_positions(hidden, weight, worst, top_k_N=torch.ones(len(worst), dtype=torch.long))
    assert torch.isfinite(got).all()
    assert torch.isfinite(torch.autograd.grad(got.sum(), hidden)[0]).all()


def test_temperature_zero_counts_as_one() -> None:
    hidden, weight, _, target = make(dtype=torch.float32)
    zero = score_positions(hidden, weight, target, temperature_N=torch.zeros(len(target)))[0]
    assert torch.equal(zero, score_positions(hidden, weight, target)[0])


MEMORY = """
import resource, torch
from posttrain.models.logprobs import score_positions
torch.set_num_threads(1)
n, v, d = 4096, 20_000, 8  # whole logits would be 328 MB
hidden, weight = torch.randn(n, d, requires_grad=True), torch.randn(v, d, requires_grad=True)
target = torch.randint(v, (n,))
score_positions(hidden[:64], weight, target[:64], chunk=64)[0].sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
score_positions(hidden, weight, target, chunk=64)[0].sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_is_bounded_by_the_chunk() -> None:
    # A process of its own: the peak of this one may lie far above already.
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 60_000, f"{done.stdout} KiB more at the peak"


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3", "mixtral"])
def test_head_and_backbone_give_the_models_own_logits(kind: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from posttrain.models.tiny import make_tiny

    model = AutoModelForCausalLM.from_pretrained(make_tiny(tmp_path / kind, kind=kind))  # type: ignore[arg-type]
    ids = torch.tensor([[1, 40, 50, 60, 70]])
    with torch.no_grad():
        hidden = backbone(model)(input_ids=ids).last_hidden_state[0]
        torch.testing.assert_close(full_logits(hidden, head(model), **head_options(model)), model(input_ids=ids).logits[0])

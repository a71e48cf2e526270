"""KL estimators: their values, and that their gradient is the KL's own (guarantee A11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from posttrain.errors import UsageError
from posttrain.losses._base import Batch, Outputs
from posttrain.losses.ref_kl import RefKl

Make = Callable[..., Batch]
ESTIMATORS = ("k1", "k2", "k3")


@pytest.mark.parametrize("estimator,wanted", [("k1", 0.5), ("k2", 0.125), ("k3", 0.106531)])
def test_reference_values(make_batch: Make, estimator: str, wanted: float) -> None:
    logprobs = torch.tensor([-1.0], dtype=torch.float64)
    batch = make_batch((1,), ref_logprobs_N=logprobs - 0.5, rollout_logprobs_N=logprobs)
    value, metrics = RefKl(coefficient=1.0, estimator=estimator)(batch, Outputs(policy_logprobs_N=logprobs))
    assert float(value) == pytest.approx(wanted, abs=1e-6)
    assert metrics["ref_kl"] == pytest.approx(wanted, abs=1e-6)
    assert float(RefKl(coefficient=0.5, estimator=estimator)(batch, Outputs(policy_logprobs_N=logprobs))[0]) == pytest.approx(
        wanted / 2, abs=1e-6
    )


def expected(make_batch: Make, loss: RefKl, logits: Tensor, reference: Tensor, sampler: Tensor, given: bool = True) -> Tensor:
    """The loss's expectation over a vocabulary of 5, enumerated: token v is a row of one position and weight sampler(v)."""
    fields = {
        "ref_logprobs_N": reference.log_softmax(-1),
        "weights_R": sampler,
        "rollout_logprobs_N": sampler.log() if given else None,
    }
    return loss(make_batch((1,) * 5, **fields), Outputs(policy_logprobs_N=logits.log_softmax(-1)))[0]


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_expected_gradient_is_that_of_the_kl(make_batch: Make, estimator: str, on_policy: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    draw = [torch.randn(5, dtype=torch.float64, generator=generator) for _ in range(3)]
    logits, reference = draw[0].requires_grad_(), draw[1]
    sampler = (logits.detach() if on_policy else draw[2]).softmax(-1)
    log_p = logits.log_softmax(-1)
    (wanted,) = torch.autograd.grad((log_p.exp() * (log_p - reference.log_softmax(-1))).sum(), logits)
    loss = RefKl(coefficient=1.0, estimator=estimator, importance_cap=0.0)
    (got,) = torch.autograd.grad(expected(make_batch, loss, logits, reference, sampler), logits)
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-8)
    if on_policy:  # the same where nothing says that the samples are of another policy
        (got,) = torch.autograd.grad(expected(make_batch, loss, logits, reference, sampler, given=False), logits)
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_expected_value_is_the_kl(make_batch: Make, estimator: str) -> None:
    generator = torch.Generator().manual_seed(1)
    logits, reference, other = (torch.randn(5, dtype=torch.float64, generator=generator) for _ in range(3))
    log_p = logits.log_softmax(-1)
    wanted = float((log_p.exp() * (log_p - reference.log_softmax(-1))).sum())
    loss = RefKl(coefficient=1.0, estimator=estimator, importance_cap=0.0)
    assert expected(make_batch, loss, logits, reference, other.softmax(-1)).item() == pytest.approx(wanted, rel=1e-6)


def test_the_cap_bounds_value_and_gradient(make_batch: Make) -> None:
    logprobs = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    batch = make_batch((1,), ref_logprobs_N=torch.tensor([-1.5]), rollout_logprobs_N=torch.tensor([-4.0]))
    value, _ = RefKl(coefficient=1.0, estimator="k1")(batch, Outputs(policy_logprobs_N=logprobs))
    (gradient,) = torch.autograd.grad(value, logprobs)
    assert value.item() == pytest.approx(2 * 0.5) and gradient.item() == pytest.approx(2 * (0.5 + 1))


def test_needs_the_reference(make_batch: Make) -> None:
    assert RefKl().annotations == ("ref_logprobs",)
    with pytest.raises(UsageError, match="annotate"):
        RefKl()(make_batch((2,), ref_logprobs_N=None), Outputs(policy_logprobs_N=torch.zeros(2)))
    with pytest.raises(UsageError, match="k4"):
        RefKl(estimator="k4")  # type: ignore[arg-type]

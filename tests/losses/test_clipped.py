"""Reference values of the clipped surrogate (guarantees, section C), and its off-policy correction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from posttrain.errors import UsageError
from posttrain.losses._base import Batch, Outputs
from posttrain.losses.clipped import Clipped

Make = Callable[..., Batch]


def one(make_batch: Make, loss: Clipped, advantage: float, ratio: float, **fields: Any) -> tuple[float, float, dict[str, float]]:
    """(loss, gradient by the logprob, metrics) of one token with old logprob -1."""
    old = torch.tensor([-1.0], dtype=torch.float64)
    batch = make_batch((1,), advantages_N=torch.tensor([advantage]), **{"rollout_logprobs_N": old, **fields})
    logprobs = (old + math.log(ratio)).requires_grad_()
    value, metrics = loss(batch, Outputs(policy_logprobs_N=logprobs))
    (gradient,) = torch.autograd.grad(value, logprobs)
    return value.item(), gradient.item(), dict(metrics)


@pytest.mark.parametrize(
    "advantage,ratio,wanted,slope,counted",
    [
        (1.0, 1.5, -1.28, 0.0, "clipped_high"),
        (-1.0, 0.5, 0.8, 0.0, "clipped_low"),
        (-1.0, 5.0, 3.0, 0.0, "clipped_dual"),
        (1.0, 1.1, -1.1, -1.1, ""),
        (1.0, 0.5, -0.5, -0.5, ""),
        (-1.0, 1.5, 1.5, 1.5, ""),
        (1.0, 1.0, -1.0, -1.0, ""),
    ],
)
def test_reference_values(make_batch: Make, advantage: float, ratio: float, wanted: float, slope: float, counted: str) -> None:
    value, gradient, metrics = one(make_batch, Clipped(), advantage, ratio)
    assert value == pytest.approx(wanted, abs=1e-6)
    assert gradient == pytest.approx(slope, abs=1e-6)
    assert {k for k, v in metrics.items() if v} == ({counted, "clip_fraction"} if counted else set())


def test_dual_clip_is_an_option(make_batch: Make) -> None:
    assert one(make_batch, Clipped(dual_clip=0.0), -1.0, 5.0)[:2] == (pytest.approx(5.0), pytest.approx(5.0))


def test_every_bound_is_an_option(make_batch: Make) -> None:
    assert one(make_batch, Clipped(eps_high=0.4), 1.0, 1.5)[0] == pytest.approx(-1.4)
    assert one(make_batch, Clipped(eps_low=0.4), -1.0, 0.5)[0] == pytest.approx(0.6)


@pytest.mark.parametrize(
    "cap,gap,wanted", [(2.0, math.log(1.5), 1.5), (2.0, math.log(5.0), 2.0), (0.0, math.log(5.0), 5.0), (2.0, -1.0, math.exp(-1))]
)
def test_correction_is_truncated_and_applied_once(make_batch: Make, cap: float, gap: float, wanted: float) -> None:
    """With proximal logprobs the ratio is to them, and min(exp(proximal - rollout), cap) multiplies without a gradient."""
    proximal = torch.tensor([-1.0], dtype=torch.float64)
    value, gradient, _ = one(
        make_batch,
        Clipped(decoupled=True, importance_cap=cap),
        1.0,
        1.1,
        proximal_logprobs_N=proximal,
        rollout_logprobs_N=proximal - gap,
    )
    assert value == pytest.approx(-1.1 * wanted)
    assert gradient == pytest.approx(-1.1 * wanted)


def test_decoupled_asks_for_what_it_reads_and_reads_what_it_asks_for(make_batch: Make) -> None:
    assert Clipped().annotations == () and Clipped(decoupled=True).annotations == ("proximal_logprobs",)
    with pytest.raises(UsageError, match=r"proximal_logprobs.*annotate"):
        one(make_batch, Clipped(decoupled=True), 1.0, 1.0)
    proximal = torch.tensor([-3.0], dtype=torch.float64)
    assert one(make_batch, Clipped(), 1.0, 1.1, proximal_logprobs_N=proximal)[0] == pytest.approx(-1.1), "not asked, not read"


def test_without_proximal_logprobs_the_ratio_is_the_whole_correction(make_batch: Make) -> None:
    value, gradient, _ = one(make_batch, Clipped(eps_high=10.0, dual_clip=0.0), 1.0, 4.0)
    assert (value, gradient) == (pytest.approx(-4.0), pytest.approx(-4.0))


def test_extreme_differences_stay_finite(make_batch: Make) -> None:
    for ratio in (1e-300, 1e300):
        value, gradient, _ = one(make_batch, Clipped(dual_clip=0.0), -1.0, ratio)
        assert math.isfinite(value) and math.isfinite(gradient) and gradient == 0.0


def test_rows_that_nobody_sampled_are_refused(make_batch: Make) -> None:
    with pytest.raises(UsageError, match=r"t0.*cross_entropy"):
        one(make_batch, Clipped(), 1.0, 1.0, rollout_logprobs_N=None)
    with pytest.raises(UsageError, match="rollout_logprobs"):
        one(make_batch, Clipped(), 1.0, 1.0, rollout_logprobs_N=torch.tensor([float("nan")]))


@pytest.mark.parametrize("fields", [{"eps_low": 1.5}, {"eps_high": 0.0}, {"dual_clip": 1.1}, {"importance_cap": -1.0}])
def test_options_out_of_range_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=str(next(iter(fields.values())))):
        Clipped(**fields)

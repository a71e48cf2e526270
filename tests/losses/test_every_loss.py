"""What every loss must satisfy, over all that are listed: a new file is tested with no edit here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from posttrain import plugins
from posttrain.losses._base import Aggregation, Batch, Loss, Outputs

LOSSES = plugins.names("losses")
AGGREGATIONS = get_args(Aggregation)
LENGTHS = (2, 6, 1, 9, 3, 4, 5, 2)

Make = Callable[..., Batch]


def make_loss(name: str, aggregation: Aggregation) -> Loss:
    """The loss with its members, if it has any, aggregating alike."""
    loss: Loss = plugins.build("losses", name)
    fields: dict[str, Any] = {"aggregation": aggregation, "normaliser": 32.0}
    members = getattr(loss, "losses", ())
    if members:
        fields["losses"] = tuple(replace(member, **fields) for member in members)
    return replace(loss, **fields)


def logprobs(batch: Batch) -> Tensor:
    """Near the rollout's, on no kink of a clip."""
    noise = torch.randn(len(batch.row_N), generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 0.3
    assert batch.rollout_logprobs_N is not None
    return (batch.rollout_logprobs_N + noise).requires_grad_()


def value_and_gradient(loss: Loss, parts: list[tuple[Batch, Tensor]]) -> tuple[float, list[Tensor]]:
    """What the trainer does: one denominator over all parts, then backward part by part."""
    weight = sum(loss.weight(batch) for batch, _ in parts)
    total, gradients = 0.0, []
    for batch, values in parts:
        summed, _ = loss(batch, Outputs(policy_logprobs_N=values))
        assert summed.ndim == 0
        gradients.append(torch.autograd.grad(summed / weight, values)[0])
        total += summed.item() / weight
    return total, gradients


def rows_of(batch: Batch, keep: list[int]) -> tuple[Batch, Tensor]:
    """The batch of some rows, and which positions they hold."""
    mine = torch.isin(batch.row_N, torch.tensor(keep))
    renumber = {row: i for i, row in enumerate(keep)}
    fields: dict[str, Any] = {
        name: value[mine]
        for name in vars_of(batch)
        if name.endswith("_N") and (value := getattr(batch, name)) is not None and name != "row_N"
    }
    fields["row_N"] = torch.tensor([renumber[int(r)] for r in batch.row_N[mine]])
    for name in ("weights_R", "pair_R", "rewards_R", "share_R"):
        value = getattr(batch, name)
        fields[name] = None if value is None else value[keep]
    fields["trajectory_ids"] = tuple(batch.trajectory_ids[r] for r in keep)
    return replace(batch, **fields), mine


def vars_of(batch: Batch) -> list[str]:
    return list(batch.__dataclass_fields__)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_gradient_is_that_of_finite_differences(
    name: str, aggregation: Aggregation, make_batch: Make, replay_detach: Callable[[], Any]
) -> None:
    batch = make_batch(LENGTHS)
    loss = make_loss(name, aggregation)
    start = logprobs(batch)
    step = 1e-6
    with replay_detach() as begin:

        def value(at: Tensor) -> Tensor:
            begin()
            return loss(batch, Outputs(policy_logprobs_N=at))[0]

        (gradient,) = torch.autograd.grad(value(start), start)
        with torch.no_grad():
            for n in range(len(start)):
                nudge = torch.zeros_like(start)
                nudge[n] = step
                numeric = (value(start + nudge) - value(start - nudge)).item() / (2 * step)
                assert numeric == pytest.approx(float(gradient[n]), rel=1e-6, abs=1e-8)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("num", [1, 2, 4, 8])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_splitting_a_batch_changes_nothing(name: str, aggregation: Aggregation, num: int, make_batch: Make) -> None:
    whole = make_batch(LENGTHS, weights_R=torch.tensor([1.0, 1, 0.5, 1, 2, 1, 0, 1]))
    loss = make_loss(name, aggregation)
    values = logprobs(whole)
    total, (gradient,) = value_and_gradient(loss, [(whole, values)])
    parts, masks = [], []
    for i in range(num):
        part, mine = rows_of(whole, list(range(i, len(LENGTHS), num)))
        parts.append((part, values.detach()[mine].requires_grad_()))
        masks.append(mine)
    split_total, gradients = value_and_gradient(loss, parts)
    assert split_total == pytest.approx(total, rel=1e-10)
    for mine, part in zip(masks, gradients, strict=True):
        torch.testing.assert_close(part, gradient[mine], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("how", ["mask", "weight"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_masking_rows_equals_removing_them(name: str, aggregation: Aggregation, how: str, make_batch: Make) -> None:
    whole = make_batch(LENGTHS)
    loss = make_loss(name, aggregation)
    values = logprobs(whole).detach()
    gone = [1, 4, 6]
    kept = [r for r in range(len(LENGTHS)) if r not in gone]
    small, mine = rows_of(whole, kept)
    total, (gradient,) = value_and_gradient(loss, [(small, values[mine].requires_grad_())])
    if how == "mask":
        lost = {name: torch.where(mine, getattr(whole, name), float("nan")) for name in ("rollout_logprobs_N", "ref_logprobs_N")}
        masked = replace(whole, loss_mask_N=mine, **lost)  # what is masked may hold anything
    else:
        masked = replace(whole, weights_R=torch.tensor([float(r in kept) for r in range(len(LENGTHS))]))
    masked_total, (masked_gradient,) = value_and_gradient(loss, [(masked, values.requires_grad_())])
    assert masked_total == pytest.approx(total, rel=1e-12)
    torch.testing.assert_close(masked_gradient[mine], gradient, rtol=1e-10, atol=1e-14)
    assert not masked_gradient[~mine].any()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_a_fully_masked_batch_is_zero_and_finite(name: str, aggregation: Aggregation, make_batch: Make) -> None:
    batch = make_batch(LENGTHS, loss_mask_N=torch.zeros(sum(LENGTHS), dtype=torch.bool))
    loss = make_loss(name, aggregation)
    values = logprobs(batch)
    summed, _ = loss(batch, Outputs(policy_logprobs_N=values))
    (gradient,) = torch.autograd.grad(summed, values)
    assert loss.weight(batch) == 0 and summed.item() == 0 and not gradient.any()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_cutting_a_trajectory_into_rows_changes_nothing(name: str, aggregation: Aggregation, make_batch: Make) -> None:
    """Guarantee A15: rows 1 and 2 are parts of one trajectory of 6 + 3 tokens."""
    whole = make_batch((4, 9, 2))
    cut = make_batch((4, 6, 3, 2), share_R=torch.tensor([1.0, 6 / 9, 3 / 9, 1.0]), **same_tokens(whole))
    loss = make_loss(name, aggregation)
    values = logprobs(whole)
    total, (gradient,) = value_and_gradient(loss, [(whole, values)])
    cut_total, (cut_gradient,) = value_and_gradient(loss, [(cut, values)])
    assert cut_total == pytest.approx(total, rel=1e-6)  # shares are float32
    torch.testing.assert_close(cut_gradient, gradient, rtol=1e-6, atol=1e-12)


def same_tokens(batch: Batch) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in ("advantages_N", "rollout_logprobs_N", "ref_logprobs_N")}


@pytest.mark.parametrize("name", LOSSES)
def test_aggregations_differ_where_lengths_do(name: str, make_batch: Make) -> None:
    batch = make_batch(LENGTHS)
    values = logprobs(batch)
    found = {value_and_gradient(make_loss(name, a), [(batch, values)])[0] for a in AGGREGATIONS}
    assert len(found) == 3
    loss = make_loss(name, "constant")
    if not getattr(loss, "losses", ()):
        assert value_and_gradient(replace(loss, normaliser=64.0), [(batch, values)])[0] not in found

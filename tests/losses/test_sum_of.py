"""Sums of losses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from posttrain.errors import UsageError
from posttrain.losses._base import Batch, Outputs
from posttrain.losses.clipped import Clipped
from posttrain.losses.cross_entropy import CrossEntropy
from posttrain.losses.ref_kl import RefKl
from posttrain.losses.sum_of import SumOf


def test_is_the_sum(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch((3, 4))
    outputs = Outputs(policy_logprobs_N=torch.full((7,), -1.0, dtype=torch.float64))
    parts = (Clipped(), RefKl(coefficient=0.1))
    both = SumOf(losses=parts)
    value, metrics = both(batch, outputs)
    each = [part(batch, outputs) for part in parts]
    assert float(value) == pytest.approx(sum(float(v) for v, _ in each))
    assert metrics == {**each[0][1], **each[1][1]}
    assert both.weight(batch) == parts[0].weight(batch)


def test_what_it_needs_is_what_its_members_need() -> None:
    assert SumOf().annotations == ("ref_logprobs",) and SumOf().reads_rollout
    assert not SumOf(losses=(CrossEntropy(), RefKl())).reads_rollout


def test_one_denominator() -> None:
    with pytest.raises(UsageError, match=r"sequence_mean.*alike"):
        SumOf(losses=(Clipped(aggregation="sequence_mean"),))
    with pytest.raises(UsageError, match="no losses"):
        SumOf(losses=())

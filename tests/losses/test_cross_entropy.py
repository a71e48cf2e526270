"""Supervised loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from posttrain.losses._base import Batch, Outputs
from posttrain.losses.cross_entropy import CrossEntropy


def test_is_the_mean_negative_logprob_whatever_the_advantage(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch((1, 2), rollout_logprobs_N=None)
    logprobs = torch.tensor([-1.0, -2.0, -6.0])
    value, metrics = CrossEntropy()(batch, Outputs(policy_logprobs_N=logprobs))
    assert float(value) / CrossEntropy().weight(batch) == pytest.approx(3.0)
    assert metrics == {} and not CrossEntropy().reads_rollout

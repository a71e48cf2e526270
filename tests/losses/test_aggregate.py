"""Reference values of the three aggregations (guarantees, section C)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from posttrain.losses._aggregate import aggregate, weight
from posttrain.losses._base import Aggregation, Batch


@pytest.mark.parametrize(
    "aggregation,normaliser,wanted", [("token_mean", 1.0, 0.25), ("sequence_mean", 1.0, 0.5), ("constant", 8.0, 0.125)]
)
def test_reference_values(aggregation: Aggregation, normaliser: float, wanted: float, make_batch: Callable[..., Batch]) -> None:
    batch = make_batch((2, 6))
    values = torch.tensor([1.0, 1, 0, 0, 0, 0, 0, 0], dtype=torch.float64)
    found = float(aggregate(values, batch, aggregation, normaliser)) / weight(batch, aggregation, normaliser)
    assert found == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant"])
def test_row_weights_are_relative(aggregation: Aggregation, make_batch: Callable[..., Batch]) -> None:
    """A row of weight 2 counts as the row given twice."""
    values = torch.rand(11, dtype=torch.float64)
    once = replace(make_batch((2, 6)), weights_R=torch.tensor([1.0, 2.0]))
    twice = make_batch((2, 6, 6))
    doubled = torch.cat([values[:8], values[2:8]])
    mean = float(aggregate(values[:8], once, aggregation, 4.0)) / weight(once, aggregation, 4.0)
    assert mean == pytest.approx(float(aggregate(doubled, twice, aggregation, 4.0)) / weight(twice, aggregation, 4.0), rel=1e-6)

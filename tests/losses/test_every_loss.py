"""What every loss must satisfy, over all that are listed: a new file is tested with no edit here."""

from __future__ import annotations

import pytest

from posttrain import plugins
from posttrain.contracts import losses
from posttrain.losses._base import Aggregation, Loss

LOSSES = plugins.names("losses")
over_all = pytest.mark.parametrize("name", LOSSES)
each_way = pytest.mark.parametrize("aggregation", losses.AGGREGATIONS)


def make(name: str, aggregation: Aggregation) -> Loss:
    loss: Loss = plugins.build("losses", name)
    return losses.aggregating(loss, aggregation)


@each_way
@over_all
def test_gradient_is_that_of_finite_differences(name: str, aggregation: Aggregation) -> None:
    assert list(losses.finite_differences(make(name, aggregation))) == []


@pytest.mark.parametrize("num", [1, 2, 4, 8])
@each_way
@over_all
def test_splitting_a_batch_changes_nothing(name: str, aggregation: Aggregation, num: int) -> None:
    assert list(losses.splitting(make(name, aggregation), [num])) == []


@pytest.mark.parametrize("how", ["mask", "weight"])
@each_way
@over_all
def test_masking_rows_equals_removing_them(name: str, aggregation: Aggregation, how: str) -> None:
    assert list(losses.masking(make(name, aggregation), [how])) == []


@each_way
@over_all
def test_a_fully_masked_batch_is_zero_and_finite(name: str, aggregation: Aggregation) -> None:
    assert list(losses.fully_masked(make(name, aggregation))) == []


@each_way
@over_all
def test_cutting_a_trajectory_into_rows_changes_nothing(name: str, aggregation: Aggregation) -> None:
    """Guarantee A15: rows 1 and 2 are parts of one trajectory of 6 + 3 tokens."""
    assert list(losses.cutting(make(name, aggregation))) == []


@over_all
def test_aggregations_differ_where_lengths_do(name: str) -> None:
    assert list(losses.aggregations(plugins.build("losses", name))) == []


@over_all
def test_the_whole_gate(name: str) -> None:
    assert losses.check(plugins.build("losses", name)) == []


def test_the_whole_gate_of_the_decoupled_surrogate() -> None:
    assert losses.check(plugins.build("losses", "clipped", decoupled=True)) == []

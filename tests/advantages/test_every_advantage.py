"""Group baselines: reference values, and exact zeros decided on rewards (guarantee A10)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain import plugins
from posttrain.contracts import advantages
from posttrain.contracts.advantages import group

ADVANTAGES = plugins.names("advantages")
REFERENCE = {"group_norm": 0.866025, "leave_one_out": 0.666667, "group_mean": 0.5}


def values(name: str, rewards: list[float], **options: float) -> list[float]:
    return advantages.values(plugins.build("advantages", name, **options), rewards)


@pytest.mark.parametrize("name,size", REFERENCE.items())
def test_reference_values(name: str, size: float) -> None:
    assert values(name, [1, 0, 0, 1]) == pytest.approx([size, -size, -size, size], abs=1e-6)


@pytest.mark.parametrize("reward", [0.1, 0.3, 0.95, 0.0, -7.7, 1e300])
@pytest.mark.parametrize("name", ADVANTAGES)
def test_equal_rewards_give_exactly_zero(name: str, reward: float) -> None:
    assert list(advantages.equal_rewards(plugins.build("advantages", name), [reward])) == []


@pytest.mark.parametrize("name", ADVANTAGES)
@settings(max_examples=60, deadline=None)
@given(rewards=st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=2, max_size=12))
def test_finite_and_centred(name: str, rewards: list[float]) -> None:
    found = values(name, rewards)
    assert all(math.isfinite(v) for v in found)
    assert sum(found) == pytest.approx(0, abs=1e-6 * (1 + max(abs(v) for v in found)))


@pytest.mark.parametrize("name", ADVANTAGES)
def test_failures_of_ours_neither_count_nor_train(name: str) -> None:
    assert list(advantages.failures_of_ours(plugins.build("advantages", name))) == []


@pytest.mark.parametrize("name", ADVANTAGES)
def test_the_whole_gate(name: str) -> None:
    assert advantages.check(plugins.build("advantages", name)) == []


@pytest.mark.parametrize("name", ADVANTAGES)
def test_groups_do_not_touch_each_other(name: str) -> None:
    alone = values(name, [1, 0.5, 0])
    first, second = plugins.build("advantages", name)([group([1, 0.5, 0]), group([9, 9, 4])])
    assert [t.advantage for t in first.trajectories] == alone
    assert second.task == first.task


def test_epsilon_is_an_option() -> None:
    assert values("group_norm", [1, 0], epsilon=1.0)[0] == pytest.approx(0.5 / (math.sqrt(0.5) + 1))

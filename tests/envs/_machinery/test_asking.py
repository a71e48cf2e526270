"""Limits leave room for the reference, and neighbours keep away from the stream of tasks."""

from __future__ import annotations

from posttrain.envs._machinery.asking import rough_tokens, spread, token_limit, worked
from posttrain.envs.math_computation.arithmetic import Arithmetic


def test_rough_tokens_counts_digits_marks_and_quarters_of_words() -> None:
    assert rough_tokens("12 + 3 = 15") == 7
    assert rough_tokens("Answer: 4\n") == 5


def test_limits_hold_the_reference_twice() -> None:
    assert token_limit("Answer: 4") == 48
    long = worked([f"{i} + {i} = {2 * i}" for i in range(10, 60)], 118)
    assert token_limit(long) >= 2 * rough_tokens(long)


def test_spread_is_even() -> None:
    assert [spread(level, 1, 10) for level in range(10)] == list(range(1, 11))


def test_neighbours_are_new_and_no_harder() -> None:
    family = Arithmetic(level=(3,))
    task = family.generate(0, 3)
    near = family.neighbours(task, 6)
    assert {t.level for t in near} == {2, 3}
    assert not {t.id for t in near} & {family.generate(seed, 3).id for seed in range(100)}

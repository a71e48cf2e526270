"""What attempts say about a task, and what they do not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from posttrain.evals.outcomes import attempt_numbers, items
from posttrain.types import Message, Task, Trajectory, Turn, Verdict

TASK = Task(id="a/x/0", environment="a/x", prompt=(Message(role="user", content="?"),))
OK = Trajectory(task=TASK, turns=(Turn(role="prompt", token_ids=(1,)),), verdict=Verdict(status="ok", reward=1.0), reward=1.0)
LOST = replace(OK, outcome="infra_error", verdict=None, reward=None)


def test_what_was_not_judged_is_no_zero() -> None:
    (item,) = items([LOST, replace(LOST, attempt=1)]).values()
    assert math.isnan(item.pass_rate) and math.isnan(item.reward) and (item.num_judged, item.num_unjudged) == (0, 2)
    (item,) = items([LOST, replace(OK, attempt=1)]).values()
    assert (item.pass_rate, item.reward, item.num_passed) == (1.0, 1.0, 1)


def test_a_reward_that_was_not_set_is_the_verdicts() -> None:
    (item,) = items([replace(OK, reward=None)]).values()
    assert item.reward == 1.0


@pytest.mark.parametrize(("most", "wanted"), [(0, []), (1, []), (2, [2]), (3, [2, 3]), (8, [2, 4, 8]), (12, [2, 4, 8, 12])])
def test_numbers_of_attempts_to_speak_of(most: int, wanted: list[int]) -> None:
    assert attempt_numbers(items([replace(OK, attempt=a) for a in range(most)]).values()) == wanted

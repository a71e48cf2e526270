"""A story's numbers are those of its worked lines, and the lines are true."""

from __future__ import annotations

import re

import pytest

from posttrain.envs.math_computation.stories import WordProblem


@pytest.mark.parametrize("level", range(10))
def test_stories_add_up(level: int) -> None:
    family = WordProblem()
    for seed in range(60):
        task = family.generate(seed, level)
        told = [int(n) for n in re.findall(r"\d+", task.prompt[0].content)]
        value = told.pop(0)
        for line in family.oracle(task).turns[0].content.split("\n")[:-1]:
            left, right = line.split(" = ")
            before, _, number = left.split(" ")
            assert int(before) == value and int(number) == told.pop(0)
            value = eval(left)
            assert value == int(right)
        assert value == task.answer > 0 and not told

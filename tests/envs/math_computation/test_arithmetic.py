"""The answer is what Python makes of the expression in the prompt, and every worked line is true."""

from __future__ import annotations

import re

import pytest

from posttrain.envs.math_computation.arithmetic import Arithmetic


@pytest.mark.parametrize("level", range(10))
def test_answers_and_steps_are_true(level: int) -> None:
    family = Arithmetic()
    for seed in range(60):
        task = family.generate(seed, level)
        expression = max(re.findall(r"[-+*() 0-9]+", task.prompt[0].content), key=len)
        assert eval(expression) == task.answer
        for line in family.oracle(task).turns[0].content.split("\n")[:-1]:
            left, right = line.split(" = ")
            assert eval(left) == int(right)


def test_the_easiest_level_stays_above_zero() -> None:
    assert all(Arithmetic().generate(seed, 0).answer >= 0 for seed in range(300))

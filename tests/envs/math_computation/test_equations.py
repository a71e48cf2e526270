"""The solution put in for the unknown makes the equation true."""

from __future__ import annotations

import re

import pytest

from posttrain.envs.math_computation.equations import LinearEquation


@pytest.mark.parametrize("level", range(10))
def test_the_solution_solves(level: int) -> None:
    family = LinearEquation()
    for seed in range(60):
        task = family.generate(seed, level)
        found = re.search(r"(?:^|: |if |equation )([-+() 0-9a-z]*?) = (-?\d+)", task.prompt[0].content, re.MULTILINE)
        assert found is not None, task.prompt[0].content
        side = re.sub(r"(?<=\d)(?=[a-z(])", "*", found[1])
        assert eval(re.sub(r"[a-z]", f"({task.answer})", side)) == int(found[2])
        for line in family.oracle(task).turns[0].content.split("\n")[:-1]:
            _, middle, right = line.rsplit(" = ", 2)
            assert eval(middle) == int(right)

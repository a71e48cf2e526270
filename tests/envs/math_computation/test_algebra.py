"""Both forms agree at random points, and the longer one earns nothing."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from posttrain.contracts._play import judged
from posttrain.envs.math_computation.algebra import LikeTerms
from posttrain.types import Response


def value(expression: str, point: dict[str, int]) -> int:
    """The expression's value, by Python."""
    return int(eval(re.sub(r"(?<=[\da-z])(?=[a-z(])", "*", expression), {}, dict(point)))


@pytest.mark.parametrize("level", range(10))
def test_the_answer_equals_the_question(level: int) -> None:
    family, rng = LikeTerms(), random.Random(0)
    for seed in range(60):
        task = family.generate(seed, level)
        expression = task.private["wrong"][-1]
        assert expression in task.prompt[0].content
        point = {letter: rng.randint(-50, 50) for letter in "abcmnpxyz"}
        assert value(expression, point) == value(task.answer, point), (expression, task.answer)
        copied = asyncio.run(judged(family, task, Response.of(f"Answer: {expression}")))
        assert copied.status == "malformed" and copied.reward == 0

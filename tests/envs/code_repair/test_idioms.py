"""Both idioms of a program compute the same."""

from __future__ import annotations

import ast
import random
from typing import Any

import pytest

from posttrain.envs._machinery.idioms import comprehensions, with_loops
from posttrain.envs._machinery.programs import program


def ran(code: str, xs: list[int]) -> Any:
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope["f"](list(xs))


@pytest.mark.parametrize("num", [1, 4, 9])
def test_loops_do_what_comprehensions_do(num: int) -> None:
    looped = 0
    for seed in range(12):
        made, inputs = program(random.Random(seed), num)
        code = with_loops(made.code("f", comments=False))
        assert comprehensions(code) == 0
        looped += sum(isinstance(node, ast.For) for node in ast.walk(ast.parse(code)))
        assert [ran(code, xs) for xs in inputs] == [made.run(xs) for xs in inputs]
    assert looped >= 5


def test_a_condition_and_two_names() -> None:
    code = with_loops("def f(xs):\n    return ','.join(str(a + b) for a, b in zip(xs, xs[1:]) if a if b > 1)\n")
    assert ran(code, [1, 2, 0, 3, 4]) == "3,7"
    assert code.count("if") == 2 and code.count("for") == 1

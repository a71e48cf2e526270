"""Slow and fast forms are equal on small inputs, and the slow one is far beyond the limit on the large one."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

import pytest

from posttrain.contracts._play import judged
from posttrain.envs._machinery.slow_steps import SLOW
from posttrain.envs.code_repair.slow import IMPORTS, LENGTH, SECONDS, SlowFunction
from posttrain.types import Response


def compiled(line: str) -> Any:
    scope: dict[str, Any] = {}
    exec(f"{IMPORTS}def f(xs):\n    {line}\n    return xs\n", scope)
    return scope["f"]


def test_the_forms_of_a_step_are_equal_and_differ_in_speed() -> None:
    rng = random.Random(0)
    for step in SLOW:
        fast, slow = compiled(step.code), compiled(step.slip)
        for size in (0, 1, 9, 30):
            xs = [rng.randint(-9, 9) for _ in range(size)]
            assert fast(list(xs)) == slow(list(xs)) == step.run(list(xs))
        few = [rng.randint(-(10**6), 10**6) for _ in range(LENGTH // 20)]
        before = time.process_time()
        slow(few)
        middle = time.process_time()
        fast(few * 20)
        assert (middle - before) * 400 > 1.5 * SECONDS, step.text
        assert time.process_time() - middle < SECONDS / 5, step.text


@pytest.mark.slow
def test_the_slow_form_is_judged_wrong_for_its_time_alone() -> None:
    family = SlowFunction()
    task = family.generate(0, 0)
    slow = Response.of(f"```python\n{task.private['wrong'][0]}```")
    verdict = asyncio.run(judged(family, task, slow))
    many = len(json.loads(task.answer)["cases"])
    assert (verdict.status, verdict.reward) == ("wrong", 0.0)
    assert f"{many - 1} of {many}" in verdict.feedback and "timeout_cpu" in verdict.feedback
    assert asyncio.run(judged(family, task, family.oracle(task))).reward == 1.0

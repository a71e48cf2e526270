"""What the examples of a task determine, looked at without a sandbox."""

from __future__ import annotations

import ast
import json
import random
from typing import Any

import pytest

from posttrain import plugins
from posttrain.envs._machinery.inference import determined, fitting, kind_text, replaced, steps
from posttrain.envs._machinery.programs import KINDS, Program, program, results
from posttrain.types import Task


def test_the_vocabulary_is_drawn_whole() -> None:
    """Every remainder by 2 to 5, both bounds from -5 to 15, and so on: a step that is missed could be a rival unseen."""
    assert len(steps(KINDS)) == 14 + 42 + 18 + 8 + 3 + 4 + 13 + 2
    assert len(results()) == 6
    assert len({kind_text(step) for step in steps(KINDS)}) == len(KINDS)


@pytest.mark.parametrize("num", [1, 2])
def test_no_other_short_program_fits_the_examples_and_differs_on_hidden_inputs(num: int) -> None:
    for seed in range(3):
        rng = random.Random(seed)
        made, inputs = program(rng, num)
        shown, hidden = inputs[1:4], inputs[4:]
        assert determined(rng, made, fitting(made, KINDS, shown[0]), shown, hidden)
        for first in steps(KINDS):
            for second in steps(KINDS) if num == 2 and seed == 0 else [None]:
                for result in results():
                    other = Program((first, second, result) if second else (first, result))
                    if all(other.run(xs) == made.run(xs) for xs in shown):
                        assert all(other.run(xs) == made.run(xs) for xs in hidden), other.code("f")


def test_too_many_rivals_are_refused() -> None:
    made, _ = program(random.Random(3), 1)
    same = replaced(made, 0, KINDS)
    never = [other for other in same if other.run([1, 2, 3, 30]) != made.run([1, 2, 3, 30])]
    assert never and not determined(random.Random(0), made, never[:1], [[]] * 9, [[1, 2, 3, 30]])


def calls(task: Task) -> list[tuple[Any, Any]]:
    """The (argument, value) pairs of the prompt that hold for the task's function, in whatever wording."""
    name = json.loads(task.answer)["entry"]
    found = []
    for line in task.prompt[0].content.splitlines():
        if line.startswith(f"{name}(["):
            node = ast.parse(line, mode="eval").body
            assert isinstance(node, ast.Compare) and isinstance(node.left, ast.Call)
            found.append((ast.literal_eval(node.left.args[0]), ast.literal_eval(node.comparators[0])))
    return found


@pytest.mark.parametrize("name", ["from_examples", "completion"])
def test_what_is_shown_is_true_and_not_what_is_hidden(name: str) -> None:
    family = plugins.build("envs", f"code_generation/{name}")
    for level in (0, 9):
        for seed in range(3):
            task = family.generate(seed, level)
            spec, scope = json.loads(task.answer), dict[str, Any]()
            exec(task.private["oracle"].removeprefix("```python\n").removesuffix("```"), scope)
            shown = calls(task)
            assert len(shown) >= 3
            for xs, value in shown:
                assert scope[spec["entry"]](list(xs)) == value
                assert [xs] not in [case["args"] for case in spec["cases"]]


def test_the_tests_of_a_task_pass_with_its_reference() -> None:
    family = plugins.build("envs", "code_generation/from_tests")
    for level in (0, 5):
        task = family.generate(0, level)
        tests = task.prompt[0].content.split("```python\n")[1].split("```")[0]
        scope: dict[str, Any] = {}
        exec(task.private["oracle"].removeprefix("```python\n").removesuffix("```"), scope)
        exec(tests, scope)
        ran = [test() for name, test in list(scope.items()) if name.startswith("test_")]
        assert len(ran) == task.metadata["size"] + 1

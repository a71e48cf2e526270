"""Write the functions that given tests call."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from typing import ClassVar

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, spread
from posttrain.envs._machinery.inference import determined, kind_text, replaced
from posttrain.envs._machinery.programs import KINDS, NAMES, Numbers, Program, code_decoys, fenced, hidden, program, results
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.code import Code

WORDINGS = (
    "Write the Python functions that these tests call, so that the tests pass:\n```python\n{tests}```\n"
    "All take a list of whole numbers. Other inputs are tried too. Answer with all functions in one ```python block.",
    "```python\n{tests}```\nImplement what is tested here, for any list of integers. Put the whole module in a ```python block.",
    "Here is the test file of a module that is yet to be written.\n```python\n{tests}```\n"
    "Write the module; hidden tests check the same functions on other lists of integers. Reply with one ```python block.",
    "Test-driven task: make all of these pass, and generalise to other lists of integers.\n```python\n{tests}```\n"
    "Give the code of all functions in a ```python block.",
)
LIST = next(result for result in results() if result.code == "return xs")


@dataclass(frozen=True)
class FromTests(Family):
    """One to nine functions, each determined by a few assertions, and one that composes them; hidden inputs for all."""

    gate_seeds: ClassVar[int] = 16

    @property
    def verifier(self) -> Verifier:
        return Code()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num = spread(level, 1, 9)
        made, inputs = program(rng, num)
        name = rng.choice(NAMES)
        parts = [f"{name}_{i}" for i in range(1, num + 1)]
        tests, cases = [], []
        for part, step in zip(parts, made.steps, strict=False):
            alone = Program((step, LIST))
            shown, unseen = _examples(rng, alone)
            lines = [f"    assert {part}({xs}) == {alone.run(xs)!r}\n" for xs in shown]
            tests.append(f'def test_{part}():\n    """Must {kind_text(step)}."""\n{"".join(lines)}')
            cases += [{"entry": part, **json.loads(hidden(part, alone, [xs]))["cases"][0]} for xs in unseen]
        shown = inputs[1:3]
        inner = _nested(parts)
        lines = [f"    xs = {xs}\n    assert {name}(xs) == {_result(made, inner)} == {made.run(xs)!r}\n" for xs in shown]
        tests.append(f"def test_{name}():\n{''.join(lines)}")
        whole = json.loads(hidden(name, made, [*inputs[3:6], inputs[0]]))
        code = _module(made, name, parts)
        template, wording = pick(rng, WORDINGS)
        wrong = [_module(made, name, parts, slip=num - 1), _module(made, name, parts[:-1]), made.code(name)]
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(tests="\n\n".join(tests)),
            answer=json.dumps({"entry": name, "cases": [*whole["cases"], *cases]}),
            oracle=fenced(code),
            size=float(num),
            private={"name": name, "example": repr(made.run(shown[0])), "wrong": wrong},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return code_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Functions besides the one that composes them."""
        return float(task.metadata["size"])


def _examples(rng: random.Random, alone: Program) -> tuple[list[Numbers], list[Numbers]]:
    """Inputs that tell a step from each other one, and two that are hidden and show its bug."""
    while True:
        shown, unseen = [[rng.randint(-20, 40) for _ in range(rng.randint(4, 8))] for _ in range(2)], list[Numbers]()
        while len(unseen) < 2:
            xs = [rng.randint(-20, 40) for _ in range(rng.randint(9, 14))]
            unseen += [xs] if alone.run(xs) not in (xs, [], alone.slipped(0, xs)) else []
        if determined(rng, alone, replaced(alone, 0, KINDS), shown, unseen):
            return shown, unseen


def _nested(parts: list[str]) -> str:
    text = "xs"
    for part in parts:
        text = f"{part}({text})"
    return text


def _result(made: Program, inner: str) -> str:
    """The result's own expression, over the composed steps."""
    return re.sub(r"\bxs\b", inner, made.steps[-1].code.removeprefix("return "))


def _module(made: Program, name: str, parts: list[str], slip: int = -1) -> str:
    """The functions' text; with a bug in function ``slip``. What ``parts`` leaves out is left out."""
    functions = [
        f"def {part}(xs):\n    {step.slip if i == slip else step.code}\n    return xs\n"
        for i, (part, step) in enumerate(zip(parts, made.steps, strict=False))
    ]
    calls = "".join(f"    xs = {part}(xs)\n" for part in parts)
    return "\n\n".join([*functions, f"def {name}(xs):\n{calls}    {made.steps[-1].code}\n"])

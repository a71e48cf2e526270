"""Repair a function in which one line is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, spread
from posttrain.envs._machinery.programs import NAMES, code_decoys, fenced, hidden, program
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.code import Code

WORDINGS = (
    "This Python function has a bug in one line:\n```python\n{buggy}```\n{name}({shown}) should give {value}. "
    "The comments say what each line must do. Answer with the corrected function in a ```python block.",
    "Find and fix the bug.\n```python\n{buggy}```\nExpected: {name}({shown}) == {value}\n"
    "Give the whole function in a ```python block.",
    "One line does not do what its comment says:\n```python\n{buggy}```\nFor {shown} the result must be {value}. "
    "Reply with the repaired function in a ```python block.",
    "```python\n{buggy}```\nA test fails: {name}({shown}) must be {value}. Repair {name} and give it in a ```python block.",
)


@dataclass(frozen=True)
class WrongLine(Family):
    """A function of 1 to 9 lines, one of which does not do what its comment says."""

    gate_seeds: ClassVar[int] = 16

    @property
    def verifier(self) -> Verifier:
        return Code()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num = spread(level, 1, 9)
        name = rng.choice(NAMES)
        while True:
            made, inputs = program(rng, num)
            at = rng.randrange(len(made.steps))
            apart = [xs for xs in inputs[1:] if made.slipped(at, xs) != made.run(xs)]
            if len(apart) >= 3:
                break
        shown = apart[0]
        template, wording = pick(rng, WORDINGS)
        buggy = made.code(name, slip=at)
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(name=name, buggy=buggy, shown=shown, value=repr(made.run(shown))),
            answer=hidden(name, made, [xs for xs in inputs if xs != shown]),
            oracle=fenced(made.code(name)),
            size=float(num),
            private={"name": name, "example": repr(made.run(shown)), "wrong": [buggy, made.code(name, leave_out=0)]},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return code_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Steps before the result."""
        return float(task.metadata["size"])

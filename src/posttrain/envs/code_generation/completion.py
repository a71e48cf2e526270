"""Complete a function some of whose lines are missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, spread
from posttrain.envs._machinery.inference import determined, kind_text, replaced
from posttrain.envs._machinery.programs import KINDS, NAMES, Program, code_decoys, fenced, hidden, program
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.code import Code

WORDINGS = (
    "Complete this Python function; leave the lines that are there as they are, in their order.\n```python\n{code}```\n"
    "It must hold that\n{examples}\nAnswer with the whole function in a ```python block.",
    "Lines are missing where a comment with TODO stands:\n```python\n{code}```\nKnown values:\n{examples}\n"
    "Fill them in, change nothing else, and give the whole function in a ```python block.",
    "Fill in the TODOs so that these hold:\n{examples}\n```python\n{code}```\n"
    "Keep every given line. Hidden inputs, all lists of integers, are tried too. Reply with the function in a ```python block.",
    "```python\n{code}```\nReplace each TODO by code and keep the rest, line by line. Checks:\n{examples}\n"
    "Put the complete function in a ```python block.",
)


@dataclass(frozen=True)
class Completion(Family):
    """A function of 2 to 10 lines: the numbers of one missing line follow from the values, up to four more are described."""

    gate_seeds: ClassVar[int] = 16

    @property
    def verifier(self) -> Verifier:
        return Code()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num = spread(level, 2, 10)
        while True:
            made, inputs = program(rng, num)
            shown, unseen = inputs[1:4], [*inputs[4:], inputs[0]]
            unknown = rng.randrange(num)
            differs = any(made.slipped(unknown, xs) != made.run(xs) != made.run(xs, leave_out=unknown) for xs in unseen)
            if differs and determined(rng, made, replaced(made, unknown, KINDS), shown, unseen):
                break
        described = set(rng.sample([i for i in range(num) if i != unknown], spread(level, 0, 4)))
        name = rng.choice(NAMES)
        template, wording = pick(rng, WORDINGS)
        examples = "\n".join(f"{name}({xs}) == {made.run(xs)!r}" for xs in shown)
        kept = [step.code for i, step in enumerate(made.steps) if i not in described | {unknown}]
        answer = json.loads(hidden(name, made, unseen)) | {"shape": {"keeps": kept}}
        code = made.code(name, comments=False)
        wrong = [made.code(name, slip=unknown), made.code(name, leave_out=unknown), code.replace("xs", "numbers")]
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(code=_open(made, name, unknown, described), examples=examples),
            answer=json.dumps(answer),
            oracle=fenced(code),
            size=float(num),
            private={"name": name, "example": repr(made.run(shown[0])), "wrong": wrong},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return code_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Lines before the result."""
        return float(task.metadata["size"])


def _open(made: Program, name: str, unknown: int, described: set[int]) -> str:
    """The function with its gaps."""
    lines = [f"def {name}(xs):"]
    for i, step in enumerate(made.steps):
        text = kind_text(step) if i == unknown else step.text
        lines.append(f"    # TODO: {text}" if i == unknown or i in described else f"    {step.code}")
    return "\n".join(lines) + "\n"

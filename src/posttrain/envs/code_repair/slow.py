"""Make a slow function fast."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import ClassVar

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, spread
from posttrain.envs._machinery.programs import NAMES, Program, code_decoys, fenced, hidden, program
from posttrain.envs._machinery.slow_steps import SLOW, light, slow
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers._typed import encode
from posttrain.verifiers.code import Code, drawn

LENGTH = 40_000  # of the large input: the square of it is beyond the limit even where C code does the work
SECONDS = 2
LIMIT = f"{LENGTH:,} numbers in {SECONDS} seconds"
WORDINGS = (
    "This Python function is right but slow:\n```python\n{code}```\nMake it fast enough for {limit}, with the same results; "
    "{name}({shown}) stays {value}. Answer with the function in a ```python block.",
    "```python\n{code}```\n{name} must deal with {limit}; as it is, it takes time that grows with the square of the length. "
    "Write a faster one in a ```python block; it must return the same, {value} for {shown}.",
    "Optimise {name}; its results must not change.\n```python\n{code}```\nThe budget: {limit}. "
    "{name}({shown}) == {value} as before. Reply with a ```python block.",
    "Performance task. The function below has to work through {limit}.\n```python\n{code}```\n"
    "Give an equivalent {name} that does, in a ```python block. ({name}({shown}) gives {value}.)",
)
IMPORTS = "import bisect\nimport collections\nimport itertools\n\n\n"
SCALAR = ("return sum(xs)", "return max(xs, default=0)", "return min(xs, default=0)")  # a result that is short for any input


@dataclass(frozen=True)
class SlowFunction(Family):
    """A function of 2 to 10 steps, half of which take the square of the length; a large hidden input, and small ones."""

    gate_seeds: ClassVar[int] = 7  # few: a slow decoy takes all of its seconds

    @property
    def verifier(self) -> Verifier:
        return Code(cpu=SECONDS)

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num, name = spread(level, 2, 10), rng.choice(NAMES)
        while True:
            made, inputs = program(rng, num, (slow, light))
            if made.steps[-1].code in SCALAR:
                break
        given = Program(tuple(replace(step, code=step.slip) if step in SLOW else step for step in made.steps))
        code = given.code(name, comments=False)
        large = [rng.randrange(2**32), LENGTH, -1_000_000, 1_000_000]
        shown, *unseen = inputs[1:]
        answer = json.loads(hidden(name, made, [*unseen, inputs[0]]))
        answer["cases"].append({"args": [], "drawn": large, "expected": json.loads(encode(made.run(drawn(*large))))})
        wrong = [IMPORTS + made.code(name, leave_out=i) for i in {0, num - 1}]
        template, wording = pick(rng, WORDINGS)
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(code=code, name=name, limit=LIMIT, shown=shown, value=made.run(shown)),
            answer=json.dumps(answer),
            oracle=fenced(IMPORTS + made.code(name)),
            size=float(num),
            private={"name": name, "example": repr(made.run(shown)), "wrong": [code, *wrong]},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return code_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Steps before the result."""
        return float(task.metadata["size"])

"""Write a function anew in another idiom: loops as comprehensions, or comprehensions as loops."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, spread
from posttrain.envs._machinery.idioms import comprehensions, with_loops
from posttrain.envs._machinery.programs import NAMES, code_decoys, fenced, hidden, program
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.code import Code

WORDINGS = (
    "Rewrite this Python function {style}, so that it returns the same for every list of whole numbers:\n```python\n{code}```\n"
    "{rule} Answer with the function in a ```python block.",
    "```python\n{code}```\nWrite {name} anew {style}; its results must not change. {rule} Give the code in a ```python block.",
    "Same behaviour, other idiom: turn {name} into one {style}.\n```python\n{code}```\n{rule} Reply with a ```python block.",
    "Refactor the function below {style}. {rule}\n```python\n{code}```\nPut the new {name} in a ```python block.",
)
FUNCTIONAL = ("with comprehensions and library functions", "Use no for or while statement and no recursion")
IMPERATIVE = (
    "with plain loops",
    "Use no comprehension, generator expression, lambda, map, filter, reduce, accumulate or recursion",
)
MODULES = "; import nothing but bisect, collections, functools, itertools and math."
NOT_FUNCTIONAL: tuple[str, ...] = ("For", "AsyncFor", "While", "recursion")
NOT_IMPERATIVE: tuple[str, ...] = (
    *("ListComp", "SetComp", "DictComp", "GeneratorExp", "Lambda", "recursion"),
    *("map", "filter", "reduce", "accumulate", "starmap", "pairwise", "filterfalse", "compress"),
)


@dataclass(frozen=True)
class Idiom(Family):
    """A function of 2 to 10 steps from loops to comprehensions or back; its text shows the idiom, hidden inputs the behaviour."""

    gate_seeds: ClassVar[int] = 16

    @property
    def verifier(self) -> Verifier:
        return Code()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num, name = spread(level, 2, 10), rng.choice(NAMES)
        while True:
            made, inputs = program(rng, num)
            at = rng.randrange(num)
            short = made.code(name, comments=False)
            differs = any(made.slipped(at, xs) != made.run(xs) for xs in inputs)
            if comprehensions(short) > num // 2 and differs:
                break
        wrong = [made.code(name, slip=at, comments=False), made.code(name, leave_out=0, comments=False)]
        asked, wanted = with_loops(short), short
        (style, rule), without = FUNCTIONAL, NOT_FUNCTIONAL
        if rng.random() < 0.5:
            asked, wanted, wrong = short, with_loops(short), [with_loops(text) for text in wrong]
            (style, rule), without = IMPERATIVE, NOT_IMPERATIVE
        template, wording = pick(rng, WORDINGS)
        hiding = f"scope = {{}}\nexec({asked!r}, scope)\n{name} = scope[{name!r}]\n"
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(style=style, code=asked, name=name, rule=rule + MODULES),
            answer=json.dumps(json.loads(hidden(name, made, inputs)) | {"shape": {"without": without}}),
            oracle=fenced(wanted),
            size=float(num),
            private={"name": name, "example": repr(made.run(inputs[1])), "wrong": [*wrong, asked, hiding]},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return code_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Steps before the result."""
        return float(task.metadata["size"])

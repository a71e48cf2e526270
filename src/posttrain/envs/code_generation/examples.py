"""Write the function that a few examples determine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, spread
from posttrain.envs._machinery.inference import KIND_TEXTS, determined, fitting, steps
from posttrain.envs._machinery.programs import KINDS, NAMES, code_decoys, fenced, hidden, program, results
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.code import Code

WORDINGS = (
    "Find the Python function {name}(xs) from its values:\n{examples}\nIt takes a list of whole numbers and {rule}. "
    "Other inputs are tried too. Answer with the function in a ```python block.",
    "These hold for a function {name} of a list of integers:\n{examples}\nThe function {rule}. Write {name} so that it is right "
    "for inputs that are not shown. Give the code in a ```python block.",
    "Program by example. {name} {rule}.\n{examples}\nWork out what it does and write it in a ```python block.",
    "I have lost the source of {name}(xs), xs a list of integers. All I know is that it {rule}, and:\n{examples}\n"
    "Write it again, in a ```python block.",
)
RESULT_TEXT = "returns the list, its sum, length, largest or smallest number (0 if there is none), or one text with commas"


@dataclass(frozen=True)
class FromExamples(Family):
    """A function of one to three steps from its values alone, which no other short program of these steps has."""

    gate_seeds: ClassVar[int] = 16

    @property
    def verifier(self) -> Verifier:
        return Code()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num, many = 1 + (level > 2) + (level > 6), spread(level, 3, len(KINDS))
        kinds = KINDS[:many]
        while True:
            made, inputs = program(rng, num, kinds)
            shown, unseen = inputs[1:4], [*inputs[4:], inputs[0]]
            needed = all(any(made.run(xs, leave_out=i) != made.run(xs) for xs in unseen) for i in range(num))
            if needed and determined(rng, made, fitting(made, kinds, shown[0]), shown, unseen):
                break
        name = rng.choice(NAMES)
        template, wording = pick(rng, WORDINGS)
        takes = f"does {num} step{'s' if num > 1 else ''}, each one of: {'; '.join(KIND_TEXTS[:many])}; then it {RESULT_TEXT}"
        examples = "\n".join(f"{name}({xs}) == {made.run(xs)!r}" for xs in shown)
        by_heart = (
            f"def {name}(xs):\n    return { ({str(xs): made.run(xs) for xs in shown})!r}.get(str(xs), {made.run(shown[0])!r})\n"
        )
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(name=name, examples=examples, rule=takes),
            answer=hidden(name, made, unseen),
            oracle=fenced(made.code(name)),
            size=float(len(results()) * len(steps(kinds)) ** num),
            private={"name": name, "example": repr(made.run(shown[0])), "wrong": [by_heart, made.code(name, leave_out=num - 1)]},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return code_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Programs among which the examples decide."""
        return float(task.metadata["size"])

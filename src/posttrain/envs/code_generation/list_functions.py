"""Write a function over a list of numbers, from its description or from examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, spread
from posttrain.envs._machinery.programs import NAMES, Program, code_decoys, fenced, hidden, program
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.code import Code

WORDINGS = (
    "Write a Python function {name}(xs) that takes a list of whole numbers and does this, in order: {steps}. "
    "For example, {name}({shown}) gives {value}. Answer with the function in a ```python block.",
    "Implement {name}(xs) in Python; xs is a list of integers. Steps:\n{lines}\nExample: {name}({shown}) == {value}\n"
    "Give the code in a ```python block.",
    "I need a Python function called {name} with one argument xs, a list of integers. It should {steps}. "
    "{name}({shown}) must be {value}. Put the code in a ```python block.",
    "Task: define {name}(xs).\n{lines}\nCheck: {name}({shown}) -> {value}\nReply with a ```python block.",
)


@dataclass(frozen=True)
class ListFunction(Family):
    """A function from a specification of 1 to 9 steps over a list; hidden inputs, the empty list among them."""

    gate_seeds: ClassVar[int] = 16

    @property
    def verifier(self) -> Verifier:
        return Code()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num = spread(level, 1, 9)
        made, inputs = program(rng, num)
        name, shown = rng.choice(NAMES), inputs[1]
        template, wording = pick(rng, WORDINGS)
        texts = [step.text for step in made.steps]
        lines = "\n".join(f"{i}. {text}" for i, text in enumerate(texts, 1))
        prompt = wording.format(
            name=name, steps=", ".join(texts[:-1]) + f" and {texts[-1]}", lines=lines, shown=shown, value=repr(made.run(shown))
        )
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=prompt,
            answer=hidden(name, made, [*inputs[2:], inputs[0]]),
            oracle=fenced(made.code(name)),
            size=float(num),
            private={"name": name, "example": repr(made.run(shown)), "wrong": near_misses(made, name)},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return code_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Steps before the result."""
        return float(task.metadata["size"])


def near_misses(made: Program, name: str) -> list[str]:
    """The program without its first step, and without its last one before the result."""
    return [made.code(name, leave_out=i) for i in {0, len(made.steps) - 2}]

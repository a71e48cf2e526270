"""Linear equations with one unknown and an integer solution."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, number_decoys, pick, said, worked
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.number import Number

WORDINGS = (
    "Solve for {x}: {equation}. End with: Answer: <number>",
    "Find the value of {x} if {equation}. End with: Answer: <number>",
    "{equation}\nWhat is {x}? End with: Answer: <number>",
    "The equation {equation} holds. Determine {x}. End with: Answer: <number>",
)
LAYERS = (1, 2, 2, 3, 3, 4, 5, 6, 7, 9)
MOST = (40, 20, 50, 20, 30, 20, 20, 20, 30, 30)


@dataclass(frozen=True)
class LinearEquation(Family):
    """Built outwards from the solution, one operation a layer: ``x + 7 = 15`` at level 0, nine nested layers at level 9."""

    @property
    def verifier(self) -> Verifier:
        return Number()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        x, solution = rng.choice("xynabt"), rng.randint(2, MOST[level])
        side, total, steps = layers(rng, x, solution, LAYERS[level], MOST[level])
        equation = f"{side} = {total}"
        template, wording = pick(rng, WORDINGS)
        prompt = wording.format(x=x, equation=equation)
        prompt = prompt[0].upper() + prompt[1:] if not prompt.startswith(x) else prompt
        size = float(LAYERS[level])
        return ask(
            self, seed, level, template=template, prompt=prompt, answer=solution, oracle=worked(steps, solution), size=size
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return number_decoys(task, Fraction(task.answer), near=(task.answer + 2, -task.answer))

    def size(self, task: Task) -> float:
        """Operations between the unknown and the total."""
        return float(task.metadata["size"])


def layers(rng: random.Random, x: str, solution: int, num: int, most: int) -> tuple[str, int, list[str]]:
    """(left side, right side, steps that undo it from the outside in)."""
    side, value, undo = x, solution, list[str]()
    multiplied = num == 1 or rng.random() < 0.5  # as if the layer before had been a product
    for _ in range(num):
        if not multiplied and abs(value) < 10_000:
            n = rng.randint(2, 6)
            undo.append(f"{side} = {value * n} / {n} = {value}")
            side, value, multiplied = (f"{n}{side}" if side == x else f"{n}({side})"), value * n, True
        else:
            sign = rng.choice((1, -1))
            n = rng.randint(1, min(9, value - 1) if num == 1 else most)  # the easiest level: one digit, above zero
            after = value + sign * n
            undo.append(f"{side} = {after} {'-' if sign > 0 else '+'} {n} = {value}")
            side, value, multiplied = f"{side} {'+' if sign > 0 else '-'} {n}", after, rng.random() < 0.2
    return side, value, undo[::-1]

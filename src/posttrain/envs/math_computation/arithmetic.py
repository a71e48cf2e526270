"""Integer expressions, evaluated one operation a line."""

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
    "What is {expression}? End with: Answer: <number>",
    "How much is {expression}? End with: Answer: <number>",
    "Work out {expression} step by step. End with: Answer: <number>",
    "Find the result of {expression}. End with: Answer: <number>",
    "{expression} = ? End with: Answer: <number>",
    "Calculate {expression}. End with: Answer: <number>",
    "Evaluate the expression {expression}. End with: Answer: <number>",
    "Compute: {expression}\nEnd with: Answer: <number>",
)
# Operations, largest summand, largest factor (0: no products) at each level.
SIZES = (
    (1, 60, 0),
    (1, 99, 20),
    (2, 40, 9),
    (2, 99, 12),
    (3, 99, 12),
    (4, 99, 15),
    (5, 200, 20),
    (7, 300, 25),
    (9, 500, 30),
    (12, 999, 40),
)
LARGEST_FACTOR = 5_000  # a left side beyond it is not multiplied further


@dataclass(frozen=True)
class Arithmetic(Family):
    """Sums and differences of two integers; then products, nested in brackets as the level rises (1 to 12 operations)."""

    @property
    def verifier(self) -> Verifier:
        return Number()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        operations, most, factor = SIZES[level]
        expression, value, steps = build(rng, operations, most, factor)
        expression = expression.removeprefix("(").removesuffix(")")
        template, wording = pick(rng, WORDINGS)
        prompt = wording.format(expression=expression)
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=prompt,
            answer=value,
            oracle=worked(steps, value),
            size=float(operations),
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return number_decoys(task, Fraction(task.answer), near=(task.answer + 2, -task.answer))

    def size(self, task: Task) -> float:
        """Operations."""
        return float(task.metadata["size"])


def build(rng: random.Random, operations: int, most: int, factor: int) -> tuple[str, int, list[str]]:
    """A bracketed expression with that many operations, its value, and a line for each operation."""
    if operations == 0:
        number = rng.randint(1, most)
        return str(number), number, []
    kind = rng.choice("+-" if factor == 0 else "+++---*")
    before = rng.randint(0, operations - 1) if kind != "*" else operations - 1
    left, a, steps = build(rng, before, most, factor)
    if kind == "*" and abs(a) > LARGEST_FACTOR:
        kind = "-"
    right, b, more = build(rng, operations - 1 - before, most, factor)
    if factor == 0:  # the easiest level: one number of two digits, one of one, and never below zero
        left, a = (text := str(rng.randint(10, most))), int(text)
        right, b = (text := str(rng.randint(1, 9))), int(text)
        if kind == "+" and rng.random() < 0.5:
            left, right, a, b = right, left, b, a
    elif kind == "*":
        right, b = (text := str(rng.randint(2, factor))), int(text)
        if operations == 1:
            left, a = (text := str(rng.randint(2, 9))), int(text)
    elif kind == "-" and operations == 1 and a < b:
        left, right, a, b = right, left, b, a
    value = a + b if kind == "+" else a - b if kind == "-" else a * b
    line = f"{a} {kind} {b if b >= 0 else f'({b})'} = {value}"
    return f"({left} {kind} {right})", value, [*steps, *more, line]

"""Number sequences: go on by the rule."""

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
    "{rule}Sequence: {terms}, ...\nWhat is {which}? End with: Answer: <number>",
    "The sequence {terms} goes on in the same way. {rule}Find {which}. End with: Answer: <number>",
    "Look at the numbers {terms}. {rule}What is {which} after them? End with: Answer: <number>",
    "{rule}Continue: {terms}, ?\nGive {which}. End with: Answer: <number>",
)
AHEAD = (1, 1, 1, 2, 2, 3, 4, 5, 7, 9)
PLACES = ("", "the next number", "the second next number", "the third next number")


@dataclass(frozen=True)
class NextTerm(Family):
    """A step that is told, then one to be found, then longer rules to be followed up to nine terms ahead."""

    @property
    def verifier(self) -> Verifier:
        return Number()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        ahead = AHEAD[level]
        terms, (a, b, plus) = sequence(rng, level, ahead)
        shown, answer, order = terms[:-ahead], terms[-1], 2 if b else 1
        rule = in_words(a, b, plus) if level != 1 else ""
        steps = [line(terms, at, a, b, plus) for at in range(len(shown), len(terms))]
        which = PLACES[ahead] if ahead < len(PLACES) else f"the {ahead}th next number"
        template, wording = pick(rng, WORDINGS)
        prompt = wording.format(rule=rule and rule + " ", terms=", ".join(map(str, shown)), which=which)
        size = float(ahead * order)
        return ask(self, seed, level, template=template, prompt=prompt, answer=answer, oracle=worked(steps, answer), size=size)

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return number_decoys(task, Fraction(task.answer), near=(task.answer + 2,))

    def size(self, task: Task) -> float:
        """Terms to go on for, times the earlier terms that each depends on."""
        return float(task.metadata["size"])


def sequence(rng: random.Random, level: int, ahead: int) -> tuple[list[int], tuple[int, int, int]]:
    """(all terms with the answer last, (a, b, plus) of: term = a * last + b * the one before + plus)."""
    if level <= 1:
        step = rng.choice((-1, 1)) * rng.randint(2, 6 if level == 0 else 30)
        num = rng.randint(3, 6) + ahead
        start = rng.randint(1, 60 if level == 0 else 90) + (num * -step if step < 0 else 0)
        return [start + step * i for i in range(num)], (1, 0, step)
    if level <= 4:
        a, b, plus = rng.randint(2, 4 if level < 4 else 6), 0, rng.choice((-1, 1)) * rng.randint(1, 12)
        terms = [rng.randint(13, 99)]
    else:
        a, b = (1, 1) if level == 5 else (rng.randint(2, 3), rng.choice((-2, -1, 1, 2)))
        plus, terms = 0, [rng.randint(1, 60 if level == 5 else 30) for _ in range(2)]
    while len(terms) < 3 + bool(b) + ahead:
        terms.append(a * terms[-1] + (b * terms[-2] if b else 0) + plus)
    return terms, (a, b, plus)


def in_words(a: int, b: int, plus: int) -> str:
    """``in_words(3, 0, -2)`` -> "Each number is 3 times the one before, minus 2."."""
    if (a, b) == (1, 0):
        return f"{'Add' if plus > 0 else 'Subtract'} {abs(plus)} each time."
    if (a, b, plus) == (1, 1, 0):
        return "Each number is the sum of the two before."
    sign = "plus" if (b or plus) > 0 else "minus"
    rest = f"{abs(b)} times the one before that" if b else str(abs(plus))
    return f"Each number is {a} times the one before, {sign} {rest}."


def line(terms: list[int], at: int, a: int, b: int, plus: int) -> str:
    """The worked line for term ``at``."""
    now, last, second = terms[at], terms[at - 1], terms[at - 2]
    first, other = a * last, abs(b * second) if second > 0 else -abs(b) * abs(second)
    products = [f"{a} * {last} = {first}"] * (a != 1) + [f"{abs(b)} * {second} = {other}"] * (abs(b) > 1)
    added = other if b else abs(plus)
    sign = "-" if (b or plus) < 0 else "+"
    return ", ".join([*products, f"{first} {sign} {added} = {now}"])

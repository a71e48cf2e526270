"""Small stories with a count that changes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, number_decoys, pick, said, worked
from posttrain.envs._machinery.words import CITIES, GOODS, NAMES
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.number import Number

# (how it begins, what adds, takes, multiplies, divides; how it asks). {n} is the start or the event's number.
SETTINGS = (
    (
        "{who} has {n} {what}.",
        ("{who} buys {n} more.", "A friend gives {who} {n} {what}."),
        ("{who} gives away {n}.", "{who} loses {n} of them."),
        "Then {who} gets so many that there are {n} times as many.",
        "{who} shares them equally among {n} people, and keeps one share.",
        "How many {what} does {who} have now?",
    ),
    (
        "A shop in {where} has {n} {what}.",
        ("A truck brings {n} more.", "{n} {what} arrive."),
        ("The shop sells {n}.", "{n} are broken and thrown away."),
        "A big order makes the stock {n} times as large.",
        "They are split equally over {n} shops, and one share stays in this shop.",
        "How many {what} are left in this shop?",
    ),
    (
        "A bus to {where} starts with {n} people.",
        ("{n} people get on.", "At the next stop {n} people get on."),
        ("{n} people get off.", "At the next stop {n} people get off."),
        "A whole school gets on, and then there are {n} times as many people.",
        "The people split equally over {n} buses.",
        "How many people are on this bus?",
    ),
    (
        "{who} has {n} dollars in a jar.",
        ("{who} earns {n} dollars and puts them in.", "{who} finds {n} dollars and adds them."),
        ("{who} spends {n} dollars from the jar.", "{who} takes {n} dollars out."),
        "A prize makes the money in the jar {n} times as much.",
        "{who} divides the money equally into {n} jars, and keeps one.",
        "How many dollars are in the jar that {who} has now?",
    ),
)
EVENTS = (1, 2, 2, 3, 3, 4, 5, 6, 8, 10)
MOST = (20, 20, 50, 50, 99, 99, 200, 300, 500, 900)


@dataclass(frozen=True)
class WordProblem(Family):
    """A story of 1 to 10 events that add, take, multiply and divide; every step keeps a whole number of things."""

    @property
    def verifier(self) -> Verifier:
        return Number()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        template, setting = pick(rng, SETTINGS)
        names = {"who": rng.choice(NAMES), "what": rng.choice(GOODS), "where": rng.choice(CITIES)}
        value = start = rng.randint(3, MOST[level])
        told, steps = [setting[0].format(n=start, **names)], list[str]()
        for _ in range(EVENTS[level]):
            sentence, value, line = event(rng, setting, value, MOST[level], plain=level < 2)
            told.append(sentence.format(**names))
            steps.append(line)
        prompt = " ".join([*told, setting[-1].format(**names), "End with: Answer: <number>"])
        size = float(EVENTS[level])
        return ask(self, seed, level, template=template, prompt=prompt, answer=value, oracle=worked(steps, value), size=size)

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return number_decoys(task, Fraction(task.answer), near=(task.answer + 2,))

    def size(self, task: Task) -> float:
        """Events."""
        return float(task.metadata["size"])


def event(rng: random.Random, setting: tuple[object, ...], value: int, most: int, *, plain: bool) -> tuple[str, int, str]:
    """(sentence with names still open, value after it, worked line)."""
    _, adds, takes, times, divides, _ = setting
    assert isinstance(adds, tuple) and isinstance(takes, tuple)
    divisors = [d for d in range(2, 10) if value % d == 0 and value // d >= 2]
    kinds = ["+", "+", "-", "-"] + ([] if plain else ["*"] * (value < 2_000) + ["/"] * bool(divisors))
    kind = rng.choice([k for k in kinds if k != "-" or value > 2])
    if kind == "+":
        n, sentence = rng.randint(2, 9 if most == 20 else most), rng.choice(adds)
    elif kind == "-":
        n, sentence = rng.randint(1, min(9 if most == 20 else most, value - 1)), rng.choice(takes)
    elif kind == "*":
        n, sentence = rng.randint(2, 5), times
    else:
        n, sentence = rng.choice(divisors), divides
    after = {"+": value + n, "-": value - n, "*": value * n, "/": value // n}[kind]
    return str(sentence).replace("{n}", str(n)), after, f"{value} {kind} {n} = {after}"

"""Sums of quantities in mixed units."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from fractions import Fraction

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, number_decoys, pick, said, worked
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.number import Number

WORDINGS = (
    "How many {unit} are {amount}? End with: Answer: <number>",
    "Convert {amount} to {unit}. End with: Answer: <number>",
    "Write {amount} in {unit}. End with: Answer: <number>",
    "{amount} = ? {unit}\nEnd with: Answer: <number>",
)
# Units from large to small, each with how many of the next make one.
CHAINS = (
    (("weeks", 7), ("days", 24), ("hours", 60), ("minutes", 60), ("seconds", 1)),
    (("km", 1000), ("m", 100), ("cm", 10), ("mm", 1)),
    (("kg", 1000), ("g", 1)),
    (("dollars", 100), ("cents", 1)),
)
PAIRS = tuple((big, small, n) for chain in CHAINS for (big, n), (small, _) in itertools.pairwise(chain))
TERMS = (2, 2, 2, 3, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True)
class UnitConversion(Family):
    """Metres or dollars into hundredths, any two neighbouring units, then up to ten amounts across four units."""

    @property
    def verifier(self) -> Verifier:
        return Number()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        amounts, unit = self._near(rng, level) if level < 3 else self._far(rng, level)
        steps, parts, total = list[str](), list[str](), 0
        for at, (n, name, factor) in enumerate(amounts):
            if factor != 1:
                steps.append(f"{n} * {factor} = {n * factor}")
            parts.append(f"{n} {name}")
            before, total = total, total + n * factor
            if at:
                steps.append(f"{before} + {n * factor} = {total}")
        amount = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" and {parts[-1]}"
        template, wording = pick(rng, WORDINGS)
        prompt = wording.format(unit=unit, amount=amount)
        answer = {"value": str(total), "unit": unit}
        size = float(len(amounts) - 1)
        return ask(self, seed, level, template=template, prompt=prompt, answer=answer, oracle=worked(steps, total), size=size)

    def _near(self, rng: random.Random, level: int) -> tuple[list[tuple[int, str, int]], str]:
        """One amount of a unit and one of the next smaller."""
        big, small, n = rng.choice([p for p in PAIRS if p[2] in ((100,), (24, 60, 100, 1000))[level > 0]])
        rest = rng.randint(1, min(n - 1, 99)) * (10 if n == 1000 else 1)
        return [(rng.randint(2, (19, 19, 49)[level]), big, n), (rest, small, 1)], small

    def _far(self, rng: random.Random, level: int) -> tuple[list[tuple[int, str, int]], str]:
        """Several amounts of one dimension, into its smallest unit that occurs."""
        chain = rng.choice(CHAINS[: 2 if level > 4 else 4])
        start = rng.randint(0, max(0, len(chain) - 3))
        used = chain[start : start + (3 if level < 7 else 4)]
        factors = [1]
        for _, n in used[-2::-1]:
            factors.append(factors[-1] * n)
        units = [(name, factor) for (name, _), factor in zip(used, factors[::-1], strict=True)]
        amounts = [
            (rng.randint(2, 9 if factor > 1000 else 40), name, factor) for name, factor in rng.choices(units, k=TERMS[level])
        ]
        return amounts, units[-1][0]

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        value = Fraction(task.answer["value"])
        shown = task.private["oracle"].rsplit("\n", 1)[-1]
        other = "weeks" if task.answer["unit"] != "weeks" else "days"
        return [*number_decoys(task, value, near=(value + 10, value / 2)), Response.of(f"{shown} {other}", "another unit")]

    def size(self, task: Task) -> float:
        """Additions, each with a conversion as a rule."""
        return float(task.metadata["size"])

"""Add up, count and compare what a filter leaves of a table."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, number_decoys, pick, said, spread, worked
from posttrain.envs._machinery.tables import num_rows
from posttrain.envs._machinery.words import COLOURS, GOODS
from posttrain.types import Response, Task
from posttrain.verifiers.number import Number

WORDINGS = (
    '{table}\n\n{question} Work it out, then end with "Answer: number".',
    'Table:\n{table}\nQuestion: {question}\nShow the sum, then "Answer: number".',
    '{question} Use this table and end with "Answer: number".\n{table}',
    'Look at the table.\n{table}\n{question} Finish with the line "Answer: number".',
)
Row = tuple[str, str, int]


@dataclass(frozen=True)
class TableAggregate(Family):
    """A number over the rows of one color. Level 0: three rows, two of which are added.

    Higher levels have larger numbers, a second condition, the gap between two colors' sums (from level 4) and counts
    (from level 6); up to 19 numbers in 39 rows at level 9. Size: rows.
    """

    @property
    def verifier(self) -> Number:
        return Number()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num = num_rows(level)
        colours = rng.sample(COLOURS, 2 if level < 5 else 3)
        picked = 2 if level == 0 else rng.randint(max(2, num * 3 // 10), max(2, num // 2))
        kinds = [colours[0]] * picked + [colours[1 + i % (len(colours) - 1)] for i in range(num - picked)]
        rng.shuffle(kinds)
        high = spread(level, 19, 99)
        rows: list[Row] = [(item, kind, rng.randint(2, high)) for item, kind in zip(rng.sample(GOODS, num), kinds, strict=True)]
        question, steps, value = self._question(rng, level, rows, colours)
        template, wording = pick(rng, WORDINGS)
        table = "\n".join(["item | color | sold", *(" | ".join(map(str, row)) for row in rows)])
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(table=table, question=question),
            answer=value,
            oracle=worked(steps, value),
            size=num,
            private={"near": [sum(n for _, _, n in rows), num, rows[0][2]]},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return number_decoys(task, Fraction(task.answer), near=task.private["near"])

    def size(self, task: Task) -> float:
        return float(task.metadata["size"])

    def _question(
        self, rng: random.Random, level: int, rows: Sequence[Row], colours: Sequence[str]
    ) -> tuple[str, list[str], int]:
        """(question, worked steps, answer)."""
        first, second = colours[:2]
        of_first = [n for _, kind, n in rows if kind == first]
        kind = "sum" if level < 4 else rng.choice(("sum", "gap") if level < 6 else ("sum", "sum", "gap", "count"))
        if kind == "gap":
            sums, steps = [], []
            for colour in (first, second):
                work, total = added([n for _, k, n in rows if k == colour])
                steps.append(f"{colour}: {work}")
                sums.append(total)
            gap = abs(sums[0] - sums[1])
            steps.append(f"{max(sums)} - {min(sums)} = {gap}")
            return f"By how much do the sums of sold of the {first} and the {second} items differ?", steps, gap
        if level < 2:
            work, total = added(of_first)
            return f"What is the sum of sold for the {first} items?", [work], total
        bound = rng.choice(sorted(of_first)[: len(of_first) // 2])
        kept = [n for n in of_first if n >= bound]
        condition = f"the {first} items with sold of at least {bound}"
        if kind == "count":
            listed = ", ".join(f"{i}: {n}" for i, n in enumerate(kept, 1))
            return f"How many are {condition}?", [listed], len(kept)
        work, total = added(kept)
        return f"What is the sum of sold for {condition}?", [work], total


def added(numbers: Sequence[int]) -> tuple[str, int]:
    """The sum as steps of one addition: [3, 5, 4] -> ("3 + 5 = 8, 8 + 4 = 12", 12)."""
    total, steps = numbers[0], []
    for n in numbers[1:]:
        steps.append(f"{total} + {n} = {total + n}")
        total += n
    return ", ".join(steps) or str(total), total

"""Find a cell of a table: by its row, by an extreme, through other rows."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, text_decoys, worked
from posttrain.envs._machinery.tables import NUMBER_COLUMNS, TEXT_COLUMNS, draw_table, num_rows
from posttrain.types import Response, Task
from posttrain.verifiers.exact import Exact

WORDINGS = (
    '{table}\n\n{question} End with "Answer: value".',
    'Table:\n{table}\nQuestion: {question}\nReply with "Answer: value".',
    '{question} Look it up and finish with "Answer: value".\n{table}',
    'Use the table.\n{table}\n{question} Your last line is "Answer: value".',
)


@dataclass(frozen=True)
class TableLookup(Family):
    """One cell of a table of people. Level 0: three rows, the row is named.

    Level 1: four rows, or the row with the highest or lowest number. From level 2 the way leads through the column "boss"
    ("the boss of the boss of Mia"), from level 5 it starts at an extreme: nine steps over 39 rows at level 9. Size: cells.
    """

    @property
    def verifier(self) -> Exact:
        return Exact()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        number, other = rng.choice(list(NUMBER_COLUMNS)), rng.choice(list(TEXT_COLUMNS))
        hops = level - 1 if level >= 2 else 0
        columns = [number, other] + (["boss"] if hops else [])
        rng.shuffle(columns)
        table = draw_table(rng, num_rows(level), columns)
        steps: list[str] = []
        extreme = level >= 5 or (level == 1 and rng.random() < 0.5)
        if extreme:
            highest = rng.random() < 0.5
            value = (max if highest else min)(table.column(number))
            at = str(table.rows[table.column(number).index(value)][0])
            who = f"the person with the {'highest' if highest else 'lowest'} {number}"
            steps.append(f"The {'highest' if highest else 'lowest'} {number} is {value}: {at}.")
        else:
            who = at = str(rng.choice(table.rows)[0])
        for _ in range(hops):
            boss = str(table.cell(at, "boss"))
            steps.append(f"The boss of {at} is {boss}.")
            at = boss
        wanted = other if extreme and level == 1 else rng.choice((number, other))
        shown = str(table.cell(at, wanted))
        template, wording = pick(rng, WORDINGS)
        question = f"What is the {wanted} of {'the boss of ' * hops}{who}?"
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(table=table.text, question=question),
            answer=shown,
            oracle=worked(steps, shown),
            size=len(table.rows) * len(table.columns),
            private={"wrong": [at, *(str(c) for c in dict.fromkeys(table.column(wanted)) if str(c) != shown)][:4]},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return text_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        return float(task.metadata["size"])

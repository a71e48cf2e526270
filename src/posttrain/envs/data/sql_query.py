"""A described question -> one SELECT."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said
from posttrain.envs._machinery.queries import databases_for, draw_query
from posttrain.types import Response, Task
from posttrain.verifiers.sql import Sql

WORDINGS = (
    "Table {table}. Write one SQL SELECT that returns {words}. Reply with the SQL only.",
    "Write a single SQL query for: {words}.\nSchema: {table}\nOutput only the query.",
    "Given {table}, give {words}. Answer with one SELECT statement and nothing else.",
    "Schema: {table}\nQuestion: {words}\nSQL only:",
)
INSTANCES = 4


@dataclass(frozen=True)
class SqlQuery(Family):
    """One SELECT for a question that names its parts, judged on four databases which tell the usual slips apart.

    Level 0: one column, one condition. Then two conditions (1), aggregates and DISTINCT (2), an order (3), groups (4), a join
    (5), HAVING (6), a join with groups (7), comparison with an average (8), all of them at level 9. Size: parts of the query.
    """

    @property
    def verifier(self) -> Sql:
        return Sql()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        slips: list[tuple[str, str]] = []
        while len(slips) < 3:  # a query whose slips its databases do not tell apart is drawn again
            query = draw_query(rng, level)
            instances, slips = databases_for(rng, query, INSTANCES, 8 + 3 * level)
        template, wording = pick(rng, WORDINGS)
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(table=query.theme.signature(both=query.joined), words=query.words),
            answer=query.sql,
            oracle=query.sql,
            size=query.num_parts,
            private={
                "schema": query.theme.schema,
                "instances": instances,
                "ordered": bool(query.order),
                "slips": slips,
            },
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return [
            *(Response.of(sql, note) for note, sql in task.private["slips"][:6]),
            Response.of(f"{task.answer}; {task.answer}", "two statements"),
            Response.of(f"The query is {task.answer}", "prose before it"),
            Response.of(f"SELECT * FROM ({task.answer}) WHERE 0 = 1", "returns nothing"),
        ]

    def size(self, task: Task) -> float:
        return float(task.metadata["size"])

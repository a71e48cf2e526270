"""Questions for one SELECT: the databases tell slips apart, and a query written otherwise is right as well."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.contracts.verifiers import attempt
from posttrain.envs.data.sql_query import SqlQuery
from posttrain.types import Task, Verdict


def judge(task: Task, text: str) -> Verdict:
    return asyncio.run(SqlQuery().verifier.judge(attempt(task.answer, text, **task.private)))


@pytest.mark.parametrize("level", range(10))
def test_databases_differ_and_order_is_judged_when_asked(level: int) -> None:
    for seed in range(5):
        task = SqlQuery().generate(seed, level)
        databases = task.private["instances"]
        assert len(databases) >= 3 and len({repr(d) for d in databases}) == len(databases)
        assert task.private["ordered"] == ("sorted by" in task.prompt[0].content)
        assert len(task.private["slips"]) >= 3


def test_off_by_one_and_reading_the_answer_off_one_database() -> None:
    task = SqlQuery().generate(3, 0)
    assert judge(task, task.answer.lower().replace("where", "\nwhere\n") + ";").status == "ok"
    column, op, value = task.answer.split(" WHERE ")[1].split()
    other = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}[op]
    assert judge(task, task.answer.replace(f"{column} {op} {value}", f"{column} {other} {value}")).status == "wrong"
    table = task.answer.split(" FROM ")[1].split()[0]
    rows = task.private["instances"][0][table]
    constant = " UNION ALL ".join(f"SELECT '{row[0]}'" for row in rows)
    assert judge(task, constant).status == "wrong"

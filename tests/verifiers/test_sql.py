"""SQL judged by rows: several databases, duplicates, order, types, and queries that attack."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from posttrain.contracts.verifiers import attempt
from posttrain.processes import shared
from posttrain.types import Verdict
from posttrain.verifiers.sql import Sql, read_query

SCHEMA = "CREATE TABLE pets (name TEXT, kind TEXT, age INTEGER);"
INSTANCES = [
    {"pets": [["Rex", "dog", 5], ["Tom", "cat", 6], ["Bob", "dog", 6]]},
    {"pets": [["Rex", "dog", 7], ["Tom", "dog", 7], ["Ann", None, 2]]},
    {"pets": []},
]
HOSTILE = {
    "recursion": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
    "rows": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    "wide rows": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT printf('%90000d', x) FROM c",
    "memory": "WITH RECURSIVE c(x, y) AS (SELECT 1, 'a' UNION SELECT x + 1, printf('%90000d', x) FROM c) SELECT max(y) FROM c",
    "cross joins": "SELECT count(*) FROM pets a, pets b, pets c, pets d, pets e, pets f, pets g, pets h, pets i, pets j, pets k, "
    "pets l, pets m, pets n, pets o, pets p",
    "random blob": "SELECT hex(randomblob(1000000000))",
    "zero blob": "SELECT zeroblob(2000000000)",
    "print": "SELECT printf('%2000000000d', 1)",
    "extension": "SELECT load_extension('/tmp/x.so')",
    "read a file": "SELECT readfile('/etc/passwd')",
    "write a file": "SELECT writefile('/tmp/x', 'x')",
    "catalogue pragma": "SELECT * FROM pragma_database_list",
    "like": f"SELECT '{'a' * 3000}' LIKE '{'%a' * 29}b'",
    "glob": f"SELECT '{'a' * 3000}' GLOB '{'*a' * 29}b'",
    "deep": "SELECT " + "(" * 3000 + "1" + ")" * 3000,
    "many columns": "SELECT " + ", ".join(["1"] * 3000),
    "surrogate": "SELECT '\ud800'",
    "bad text": "SELECT CAST(x'ff' AS TEXT)",
}


def judge(
    query: str, reference: str = "SELECT name FROM pets WHERE age > 5", verifier: Sql | None = None, **private: Any
) -> Verdict:
    spec = {"schema": SCHEMA, "instances": INSTANCES, "ordered": False} | private
    return asyncio.run((verifier or Sql()).judge(attempt(reference, query, **spec)))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM pets WHERE age > 5",
        "select p.name as n from pets p where not p.age <= 5;",
        "```sql\nSELECT name FROM pets\nWHERE age >= 6 -- six or more\n```",
        "WITH old AS (SELECT * FROM pets WHERE age > 5) SELECT name FROM old ORDER BY name DESC",
    ],
)
def test_any_query_with_the_same_rows_is_right(query: str) -> None:
    verdict = judge(query)
    assert (verdict.status, verdict.reward, verdict.parts["rows"]) == ("ok", 1.0, 1.0)


def test_one_database_is_not_enough() -> None:
    verdict = judge("SELECT name FROM pets WHERE age >= 5")
    assert verdict.status == "wrong" and verdict.reward == 0
    assert verdict.parts["rows"] == pytest.approx(2 / 3) and verdict.evidence["agree"] == [False, True, True]


def test_duplicates_and_types_and_columns_count() -> None:
    assert judge("SELECT DISTINCT kind FROM pets", "SELECT kind FROM pets").status == "wrong"
    assert judge("SELECT CAST(age AS TEXT) FROM pets", "SELECT age FROM pets").status == "wrong"
    assert judge("SELECT age * 1.0 FROM pets", "SELECT age FROM pets").status == "ok"
    assert judge("SELECT age, name FROM pets", "SELECT name, age FROM pets").status == "wrong"
    assert judge("SELECT ifnull(kind, '') FROM pets", "SELECT kind FROM pets").status == "wrong"


def test_order_counts_only_when_asked_for() -> None:
    reference = "SELECT name FROM pets ORDER BY name"
    assert judge("SELECT name FROM pets ORDER BY name DESC", reference).status == "ok"
    assert judge("SELECT name FROM pets ORDER BY name DESC", reference, ordered=True).status == "wrong"
    assert judge("SELECT name FROM pets ORDER BY 1", reference, ordered=True).status == "ok"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The query is SELECT 1",
        "SELECT 1; SELECT 2",
        "ATTACH '/tmp/x' AS y",
        "PRAGMA query_only = OFF",
        "DROP TABLE pets",
        "INSERT INTO pets VALUES ('a', 'b', 1)",
        "```sql\nSELECT 1",
        "SELECT 1\x00",
        "SELECT " + "1," * 10_000 + "1",
        "x" * 10_000_000,
    ],
)
def test_what_is_not_one_select_is_malformed(text: str) -> None:
    verdict = judge(text)
    assert (verdict.status, verdict.reward) == ("malformed", 0.0)


def test_a_query_that_does_not_run_is_wrong_and_says_why() -> None:
    verdict = judge("SELECT nme FROM pets")
    assert verdict.status == "wrong" and verdict.parts["runs"] == 0 and "nme" in verdict.feedback
    assert judge("SELECT 1 /* ; DROP TABLE pets */ FROM").status == "wrong"
    assert judge("WITH x AS (SELECT 1) DELETE FROM pets").status == "wrong"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_queries_end_as_wrong_within_the_deadline(name: str) -> None:
    start = time.monotonic()
    verdict = judge(HOSTILE[name], verifier=Sql(deadline=3.0))
    assert verdict.status in ("wrong", "malformed") and verdict.reward == 0, verdict
    assert time.monotonic() - start < 60
    assert judge("SELECT name FROM pets WHERE age > 5").status == "ok"  # the pool still answers


def test_bounds_are_options() -> None:
    everything = "SELECT name FROM pets"
    assert judge(everything, everything, Sql(max_rows=2)).status == "unverifiable"
    assert judge("SELECT a.name FROM pets a, pets b", everything, Sql(max_rows=4)).evidence["error"].endswith("4 rows")
    assert judge(HOSTILE["recursion"], verifier=Sql(max_steps=5_000)).evidence["error"].endswith("5,000 steps")


def test_a_broken_reference_is_not_the_answers_fault() -> None:
    assert judge("SELECT name FROM pets", "SELECT nothing FROM nowhere").status == "unverifiable"
    assert asyncio.run(Sql().judge(attempt("SELECT 1", "SELECT 1"))).status == "unverifiable"


def test_agreement_says_which_database() -> None:
    spec = '{"schema": "CREATE TABLE t (x INTEGER);", "instances": [{"t": [[1]]}, {"t": [[2]]}], "ordered": false}'
    found = shared().call_sync("posttrain.verifiers.sql:agreement", spec, "SELECT x FROM t", "SELECT 1", 1000, 10, deadline=5.0)
    assert found["agree"] == [True, False]


def test_read_query() -> None:
    assert read_query(" ```\nSELECT 1\n``` ") == ("SELECT 1", "")
    assert read_query("SELECTED")[1] and read_query("``` ```")[1]

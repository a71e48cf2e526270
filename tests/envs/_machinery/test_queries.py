"""Queries as data: what they say and how they vary."""

from __future__ import annotations

import random

from posttrain.envs._machinery.queries import Condition, Query, databases_for, draw_query
from posttrain.envs._machinery.relations import THEMES, draw_instance

PETS = next(t for t in THEMES if t.table == "pets")


def test_sql_and_words() -> None:
    query = Query(PETS, ("kind", "AVG(age)"), (Condition("age", ">", 5),), group="kind", order=(("AVG(age)", True),), limit=2)
    assert query.sql == "SELECT kind, AVG(age) FROM pets WHERE age > 5 GROUP BY kind ORDER BY AVG(age) DESC LIMIT 2"
    for part in ("kind", "average age", "over 5", "for each kind", "high to low", "first 2"):
        assert part in query.words
    names = [note for note, _ in query.variants()]
    assert {"a wrong comparison", "a condition is missing", "the wrong way round", "no order", "one row more"} <= set(names)


def test_every_constant_of_a_query_is_said() -> None:
    for level in range(10):
        for seed in range(20):
            query = draw_query(random.Random(f"{level}/{seed}"), level)
            for condition in query.where:
                assert ("average" if condition.is_subquery else str(condition.value)) in query.words


def test_instances_fill_both_tables_and_hit_the_constants() -> None:
    instance = draw_instance(random.Random(1), PETS, {"age": 7}, 12)
    assert len(instance["pets"]) == 12 and len({row[0] for row in instance["pets"]}) == 12
    owners = {row[0] for row in instance["owners"]}
    assert {row[1] for row in instance["pets"]} <= owners
    assert any(abs(row[3] - 7) <= 1 for row in instance["pets"])


def test_slips_that_no_database_shows_are_not_offered() -> None:
    always = Query(PETS, ("name",), (Condition("name", "!=", "Nobody"),))  # true of every row
    _, slips = databases_for(random.Random(1), always, 4, 8)
    assert "a condition is missing" not in [note for note, _ in slips]

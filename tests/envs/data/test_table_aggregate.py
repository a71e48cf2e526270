"""Aggregates, checked by reading the prompt's own table."""

from __future__ import annotations

import re

import pytest

from posttrain.envs.data.table_aggregate import TableAggregate, added
from posttrain.types import Task


def worked_out(task: Task) -> int:
    """The answer, from the text of the prompt alone."""
    text = task.prompt[0].content
    rows = [line.split(" | ") for line in text.splitlines() if " | " in line][1:]

    def sold(color: str, bound: int = 0) -> list[int]:
        return [int(n) for _, c, n in rows if c == color and int(n) >= bound]

    if gap := re.search(r"sums of sold of the (\w+) and the (\w+) items differ", text):
        return abs(sum(sold(gap[1])) - sum(sold(gap[2])))
    if count := re.search(r"How many are the (\w+) items with sold of at least (\d+)", text):
        return len(sold(count[1], int(count[2])))
    if total := re.search(r"sum of sold for the (\w+) items(?: with sold of at least (\d+))?", text):
        return sum(sold(total[1], int(total[2] or 0)))
    raise AssertionError(text)


@pytest.mark.parametrize("level", range(10))
def test_the_answer_follows_from_the_table(level: int) -> None:
    for seed in range(40):
        task = TableAggregate().generate(seed, level)
        assert worked_out(task) == task.answer


def test_steps() -> None:
    assert added([3, 5, 4]) == ("3 + 5 = 8, 8 + 4 = 12", 12)
    assert added([3]) == ("3", 3)

"""Looking up cells, checked by reading the prompt's own table."""

from __future__ import annotations

import re

import pytest

from posttrain.envs.data.table_lookup import TableLookup
from posttrain.types import Task


def looked_up(task: Task) -> str:
    """The answer, from the text of the prompt alone."""
    text = task.prompt[0].content
    lines = [line.split(" | ") for line in text.splitlines() if " | " in line]
    columns, rows = lines[0], {row[0]: row for row in lines[1:]}
    asked = re.search(r"What is the (\w+) of ((?:the boss of )*)(?:the person with the (highest|lowest) (\w+)|(\w+))\?", text)
    assert asked
    wanted, bosses, extreme, by, name = asked.groups()
    if extreme:
        pick = max if extreme == "highest" else min
        name = pick(rows, key=lambda n: int(rows[n][columns.index(by)]))
    for _ in range(bosses.count("boss")):
        name = rows[name][columns.index("boss")]
    return rows[name][columns.index(wanted)]


@pytest.mark.parametrize("level", range(10))
def test_the_answer_is_in_the_table(level: int) -> None:
    for seed in range(40):
        task = TableLookup().generate(seed, level)
        assert looked_up(task) == task.answer

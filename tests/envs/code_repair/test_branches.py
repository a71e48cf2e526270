"""The ladder of a task and the table that replaces it are one function, and only the table is simple enough."""

from __future__ import annotations

import json
from typing import Any

import pytest

from posttrain.envs.code_repair.branches import MOST, ManyBranches
from posttrain.verifiers._shape import fault


def values(code: str, name: str) -> Any:
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope[name](list(range(-120, 120)))


@pytest.mark.parametrize("level", [0, 4, 9])
def test_ladder_and_table(level: int) -> None:
    family = ManyBranches()
    for seed in range(25):
        task = family.generate(seed, level)
        spec = json.loads(task.answer)
        ladder, helper, slipped, hidden = task.private["wrong"]
        table = task.private["oracle"].removeprefix("```python\n").removesuffix("```")
        assert values(table, spec["entry"]) == values(ladder, spec["entry"]) != values(slipped, spec["entry"])
        assert fault(table, spec["shape"]) == fault(slipped, spec["shape"]) == ""
        assert all("complexity" in fault(text, spec["shape"]) for text in (ladder, helper))
        assert "exec" in fault(hidden, spec["shape"])
        found = dict(zip(range(-120, 120), values(table, spec["entry"]), strict=True))
        assert set(spec["cases"][0]["expected"]) == set(found.values()), "every branch is reached"
        wrong = dict(zip(range(-120, 120), values(slipped, spec["entry"]), strict=True))
        assert any(found[x] != wrong[x] for case in spec["cases"] for x in case["args"][0])
    assert spec["shape"]["complexity"] == MOST

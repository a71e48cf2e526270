"""The amounts of the prompt, added up by other means."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from posttrain.envs.units_and_dates.units import UnitConversion

IN_BASE = {"weeks": 604800, "days": 86400, "hours": 3600, "minutes": 60, "seconds": 1} | {
    "km": Fraction(1000), "m": Fraction(1), "cm": Fraction(1, 100), "mm": Fraction(1, 1000), "kg": 1000, "g": 1,
    "dollars": 100, "cents": 1,
}  # fmt: skip


@pytest.mark.parametrize("level", range(10))
def test_the_total_is_right(level: int) -> None:
    for seed in range(60):
        task = UnitConversion().generate(seed, level)
        amounts = re.findall(r"(\d+) ([a-z]+)", task.prompt[0].content)
        total = sum(int(n) * IN_BASE[unit] for n, unit in amounts)
        assert total / IN_BASE[task.answer["unit"]] == Fraction(task.answer["value"])
        for line in task.private["oracle"].split("\n")[:-1]:
            left, right = line.split(" = ")
            assert eval(left) == int(right)

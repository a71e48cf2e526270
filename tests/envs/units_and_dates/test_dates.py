"""Dates by the calendar of the standard library."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest

from posttrain.envs.units_and_dates.dates import DAYS, DateOffset


@pytest.mark.parametrize("level", range(2, 10))
def test_dates_follow_the_calendar(level: int) -> None:
    for seed in range(60):
        task = DateOffset().generate(seed, level)
        prompt = task.prompt[0].content
        start = re.search(r"\d+ [A-Z][a-z]+ \d{4}", prompt)
        assert start is not None
        now = datetime.strptime(start[0], "%d %B %Y")
        for n, way in re.findall(r"(\d+) days (before|after)", prompt):
            now += timedelta(days=int(n) if way == "after" else -int(n))
        assert task.answer == f"{DAYS[now.weekday()]} {now.day} {now:%B %Y}"
        assert task.private["oracle"].count(task.answer) >= 2  # the last worked line arrives there too


@pytest.mark.parametrize("level", [0, 1])
def test_the_first_levels_stay_within_a_month(level: int) -> None:
    for seed in range(200):
        task = DateOffset().generate(seed, level)
        found = re.search(r"(\w+day) (\d+) (\w+)", task.prompt[0].content)
        moved = re.search(r"(\d+) days after", task.prompt[0].content)
        assert found is not None and moved is not None
        n = int(moved[1])
        assert task.answer == f"{DAYS[(DAYS.index(found[1]) + n) % 7]} {int(found[2]) + n} {found[3]}"

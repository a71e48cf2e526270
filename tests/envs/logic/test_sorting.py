"""Sorted lists hold what the prompt holds, in the order it asks for."""

from __future__ import annotations

import re

import pytest

from posttrain.envs.logic.sorting import SortNumbers, SortPeople


@pytest.mark.parametrize("level", range(10))
def test_numbers(level: int) -> None:
    for seed in range(60):
        task = SortNumbers().generate(seed, level)
        prompt = task.prompt[0].content
        given = [int(n) for n in re.findall(r"\d+", prompt)]
        down = bool(re.search(r"from largest|largest first|the largest first", prompt))
        assert [int(n) for n in task.answer] == sorted(given, reverse=down)


@pytest.mark.parametrize("level", range(10))
def test_people(level: int) -> None:
    for seed in range(60):
        task = SortPeople().generate(seed, level)
        prompt = task.prompt[0].content
        given = {name: int(n) for name, n in re.findall(r"([A-Z][a-z]+) (\d+)", prompt)}
        assert sorted(given) == sorted(task.answer)
        sign = -1 if "highest first" in prompt else 1
        for high, low in zip(task.answer, task.answer[1:], strict=False):
            assert sign * given[high] <= sign * given[low]
            if given[high] == given[low]:
                assert (high > low) if "reverse alphabetical" in prompt else (high < low)

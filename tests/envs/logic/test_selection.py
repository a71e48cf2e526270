"""The answer is what sorting the items of the prompt gives."""

from __future__ import annotations

import re

import pytest

from posttrain.envs.logic.selection import RANKS, PickExtreme


@pytest.mark.parametrize("level", range(10))
def test_the_pick_is_right(level: int) -> None:
    for seed in range(60):
        task = PickExtreme().generate(seed, level)
        prompt = task.prompt[0].content
        items = [(int(n), name, colour) for name, n, colour in re.findall(r"([A-Z][a-z]+) (\d+)(?: \((\w+)\))?", prompt)]
        if team := re.search(r"in the (\w+) team", prompt):
            items = [i for i in items if i[2] == team[1]]
        rank = re.search(r"(second |third |fourth |fifth )?(largest|smallest)", prompt)
        assert rank is not None
        ordered = sorted(items, reverse=rank[2] == "largest")
        assert ordered[RANKS.index(rank[1] or "")][1] == task.answer

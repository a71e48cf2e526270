"""The order follows from the facts alone."""

from __future__ import annotations

import re

import pytest

from posttrain.envs.logic.ordering import RANKS, WORDINGS, OrderPeople


@pytest.mark.parametrize("level", range(10))
def test_the_facts_give_the_answer(level: int) -> None:
    for seed in range(60):
        task = OrderPeople().generate(seed, level)
        prompt = task.prompt[0].content
        more, less, most, least = WORDINGS[int(task.template)]
        below = dict(
            (a, b) if word == more else (b, a) for a, word, b in re.findall(rf"(\w+) is ({more}|{less}) than (\w+)", prompt)
        )
        order = [next(iter(set(below) - set(below.values())))]
        while order[-1] in below:
            order.append(below[order[-1]])
        asked = re.search(rf"the (second |third |fourth |fifth )?({most}|{least})\?", prompt)
        assert asked is not None and len(order) == len(below) + 1
        ranked = order if asked[2] == most else order[::-1]
        assert ranked[RANKS.index(asked[1] or "")] == task.answer

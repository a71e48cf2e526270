"""Rules in words and checks in the answer say the same, and none is idle."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.contracts._play import judged
from posttrain.envs.writing.constraints import NUM_RULES, WordList
from posttrain.types import Response


@pytest.mark.parametrize("level", range(10))
def test_each_rule_is_told_and_checked(level: int) -> None:
    for seed in range(60):
        task = WordList().generate(seed, level)
        prompt = task.prompt[0].content
        assert len(task.answer) == 3 + NUM_RULES[level]
        assert str(task.answer[0]["value"]) in prompt
        for check in task.answer[3:]:
            value = check.get("value")
            word = value[1] if check["kind"] == "nth_word" else value[0] if check["kind"] == "letter_starts" else value
            assert not isinstance(word, str) or check["kind"] == "separator" or f'"{word}"' in prompt


def test_a_reply_must_keep_every_rule() -> None:
    family = WordList()
    for seed in range(40):
        task = family.generate(seed, 0)
        text = task.private["oracle"]
        assert asyncio.run(judged(family, task, Response.of(text))).status == "ok"
        assert asyncio.run(judged(family, task, Response.of(text + " more"))).status == "wrong"

"""Records written from text: the text holds what the answer says, and ages hang together."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from posttrain.contracts.verifiers import attempt
from posttrain.envs.structured_output.json_record import JsonRecord
from posttrain.types import Verdict


def judge(answer: object, text: str, **private: object) -> Verdict:
    return asyncio.run(JsonRecord().verifier.judge(attempt(answer, text, **private)))


def test_level_0_is_a_name_and_a_fact_that_the_text_states() -> None:
    for seed in range(200):
        task = JsonRecord().generate(seed, 0)
        assert len(task.answer) == 2
        for key, value in task.answer.items():
            assert str(value) in task.prompt[0].content and key in task.prompt[0].content


@pytest.mark.parametrize("level", [5, 7, 9])
def test_relative_ages_add_up(level: int) -> None:
    for seed in range(30):
        task = JsonRecord().generate(seed, level)
        ages = {p["name"]: p["age"] for p in task.answer}
        gaps = re.findall(r"(\w+) is (\d+) years (older|younger) than (\w+)", task.prompt[0].content)
        assert len(gaps) == level - 1 == len(ages) - 1
        for name, gap, way, other in gaps:
            assert ages[name] - ages[other] == int(gap) * (1 if way == "older" else -1)


def test_numbers_as_texts_and_other_key_orders() -> None:
    task = next(t for t in (JsonRecord().generate(seed, 1) for seed in range(50)) if "age" in t.answer)
    turned = dict(reversed(task.answer.items()))
    assert judge(task.answer, json.dumps(turned), **task.private).status == "ok"
    assert judge(task.answer, json.dumps(task.answer | {"age": str(task.answer["age"])}), **task.private).reward == 0

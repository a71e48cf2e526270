"""Texts and lists, compared whole."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.contracts.verifiers import attempt
from posttrain.types import Verdict
from posttrain.verifiers.exact import Exact


def judge(gold: object, text: str, **options: object) -> Verdict:
    return asyncio.run(Exact(**options).judge(attempt(gold, text)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gold", "text", "status"),
    [
        ("Anna", "Answer: Anna", "ok"),
        ("Anna", "Answer:  anna. ", "ok"),
        ("Anna", 'Answer: "Anna"', "ok"),
        ("Anna", "Answer: **Anna**", "ok"),
        ("Anna", "Answer: Anna Bell", "wrong"),
        ("Anna Bell", "Answer: Anna", "wrong"),
        ("Anna", "Answer: Anna or Ben", "wrong"),
        ("Anna", "Anna", "malformed"),
        ("Anna", "", "malformed"),
        (["a", "b"], "Answer: a, b", "ok"),
        (["a", "b"], "Answer: b, a", "wrong"),
        (["a", "b"], "Answer: a, b, c", "wrong"),
        (["a", "b"], "Answer: a", "wrong"),
        ("", "Answer: ", "unverifiable"),
        (None, "Answer: x", "unverifiable"),
        ([], "Answer: x", "unverifiable"),
        ("é", "Answer: e\u0301", "ok"),
    ],
)
def test_judged(gold: object, text: str, status: str) -> None:
    assert judge(gold, text).status == status


def test_case_counts_when_asked_to() -> None:
    assert judge("CAT-DOG", "Answer: cat-dog").status == "ok"
    assert judge("CAT-DOG", "Answer: cat-dog", case_sensitive=True).status == "wrong"


def test_partial_rewards_places_of_the_right_items_only() -> None:
    verdict = judge(["a", "b", "c"], "Answer: a, c, b", partial=0.3)
    assert verdict.status == "wrong" and verdict.reward == pytest.approx(0.1)
    assert judge(["a", "b", "c"], "Answer: a, b, b", partial=0.3).reward == 0
    assert judge(["a", "b", "c"], "Answer: a, c, b").reward == 0
    with pytest.raises(ValueError, match="below 1"):
        Exact(partial=1.0)

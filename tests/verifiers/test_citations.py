"""An answer counts only with its evidence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from posttrain.contracts.verifiers import attempt
from posttrain.types import Verdict
from posttrain.verifiers._answer import NoAnswer
from posttrain.verifiers.citations import Citations, read_cited


def judge(text: str, value: str | None = "green tea", ids: tuple[int, ...] = (2, 5), verifier: Any = None) -> Verdict:
    return asyncio.run((verifier or Citations()).judge(attempt({"value": value, "ids": list(ids)}, text)))


@pytest.mark.parametrize(
    "text",
    ["Answer: green tea [2][5]", "So [2] leads to [5].\nAnswer: Green  Tea. [5] [2]", 'Answer: "green tea" [2, 5].'],
)
def test_value_and_evidence(text: str) -> None:
    verdict = judge(text)
    assert (verdict.status, verdict.reward) == ("ok", 1.0)
    assert verdict.parts == {"format": 1.0, "value": 1.0, "evidence": 1.0}


@pytest.mark.parametrize(
    ("text", "status", "value", "evidence"),
    [
        ("Answer: green tea [2][4]", "wrong", 1.0, 0.0),
        ("Answer: green tea [2]", "wrong", 1.0, 0.0),
        ("Answer: green tea [2][5][6]", "wrong", 1.0, 0.0),
        ("Answer: green tea [2][5][5]", "wrong", 1.0, 0.0),
        ("Answer: tea [2][5]", "wrong", 0.0, 1.0),
        ("Answer: green tea or milk [2][5]", "wrong", 0.0, 1.0),
        ("Answer: not stated", "wrong", 0.0, 0.0),
        ("Answer: green tea", "malformed", None, None),
        ("Answer: [2][5]", "malformed", None, None),
        ("green tea [2][5]", "malformed", None, None),
    ],
)
def test_a_wrong_citation_zeroes(text: str, status: str, value: float | None, evidence: float | None) -> None:
    verdict = judge(text)
    assert (verdict.status, verdict.reward) == (status, 0.0)
    assert (verdict.parts.get("value"), verdict.parts.get("evidence")) == (value, evidence)
    assert "green" not in verdict.feedback and "2" not in verdict.feedback


def test_what_is_not_stated_must_be_said_so() -> None:
    assert judge("Answer: Not stated.", None, ()).status == "ok"
    assert judge("Answer: not stated [1]", None, ()).status == "wrong"
    assert judge("Answer: tea [1]", None, ()).status == "wrong"


def test_order_is_an_option() -> None:
    assert judge("Answer: green tea [5][2]").status == "ok"
    assert judge("Answer: green tea [5][2]", verifier=Citations(ordered=True)).status == "wrong"
    assert judge("Answer: green tea [2][5]", verifier=Citations(ordered=True)).status == "ok"


def test_reading() -> None:
    assert read_cited("tea [1]") == ("tea", [1]) and read_cited("a [1] b [2,3] [4]") == ("a [1] b", [2, 3, 4])
    assert read_cited("not stated") == (None, [])
    with pytest.raises(NoAnswer):
        read_cited("[99999]")


def test_a_gold_without_evidence_cannot_be_judged() -> None:
    assert asyncio.run(Citations().judge(attempt({"value": "x", "ids": []}, "Answer: x [1]"))).status == "unverifiable"

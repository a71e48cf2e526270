"""Each check holds and breaks; all must hold."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.contracts.verifiers import attempt
from posttrain.types import Verdict
from posttrain.verifiers._constraints import CHECKS, words_of
from posttrain.verifiers.constraints import Constraints

CASES = [
    ("num_words", 3, "red, blue green", "red, blue"),
    ("num_lines", 2, "a\n\nb", "a"),
    ("includes", "blue", "Red BLUE", "bluebell"),
    ("first_word", "red", "RED, blue", "blue red"),
    ("last_word", "red", "blue, red!", "red blue"),
    ("nth_word", [2, "red"], "a red b", "red a b"),
    ("uppercase", None, "RED, 2", "Red"),
    ("lowercase", None, "red, 2", "Red"),
    ("separator", ", ", "red, blue!", "red blue"),
    ("no_letter", "e", "Blu", "BLUE"),
    ("letter_starts", ["b", 2], "Blue bat red", "blue red"),
    ("ends_with", "!", "red!", "red"),
    ("longest_word", 3, "red cat", "blue"),
    ("alphabetical", None, "Ant bee", "bee ant"),
    ("all_different", None, "a b", "a A"),
    ("real_letters", None, "a b", "a b2"),
]


def judge(wanted: object, text: str, partial: float = 0.0) -> Verdict:
    return asyncio.run(Constraints(partial=partial).judge(attempt(wanted, text)))


@pytest.mark.parametrize(("kind", "value", "good", "bad"), CASES)
def test_each_check(kind: str, value: object, good: str, bad: str) -> None:
    wanted = [{"kind": kind, "value": value}]
    assert judge(wanted, good).status == "ok"
    assert judge(wanted, bad).status == "wrong"
    assert judge(wanted, " \n").status == "malformed"


def test_every_check_is_tried() -> None:
    assert {kind for kind, *_ in CASES} == set(CHECKS)


def test_all_must_hold_and_parts_say_which() -> None:
    wanted = [{"kind": "num_words", "value": 2}, {"kind": "uppercase"}]
    verdict = judge(wanted, "red blue", partial=0.2)
    assert verdict.status == "wrong" and verdict.reward == 0.2
    assert verdict.parts == {"format": 1.0, "0_num_words": 1.0, "1_uppercase": 0.0}
    assert judge(wanted, "red", partial=0.2).reward == 0


@pytest.mark.parametrize("wanted", [None, [], "x", [{"kind": "no_such"}], [{"kind": ["a"]}], [3]])
def test_unknown_constraints_are_unverifiable(wanted: object) -> None:
    assert judge(wanted, "red").status == "unverifiable"


def test_words() -> None:
    assert words_of("Red, blue-green! ...") == ["Red", "blue", "green"]

"""Numbers as people write them, read exactly or not at all."""

from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.contracts.verifiers import attempt
from posttrain.types import Verdict
from posttrain.verifiers._numbers import NotANumber, parse_number
from posttrain.verifiers.number import Number


def judge(gold: object, text: str, **options: bool) -> Verdict:
    return asyncio.run(Number(**options).judge(attempt(gold, text)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("−7", -7),
        ("+7", 7),
        ("1,234,567", 1234567),
        ("1,234.50", Fraction(2469, 2)),
        (".5", Fraction(1, 2)),
        ("3/4", Fraction(3, 4)),
        ("-3/4", Fraction(-3, 4)),
        ("1 3/4", Fraction(7, 4)),
        ("-1 3/4", Fraction(-7, 4)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\dfrac{3}{4}", Fraction(-3, 4)),
        (r"2\frac{1}{2}", Fraction(5, 2)),
        ("25%", Fraction(1, 4)),
        (r"25\%", Fraction(1, 4)),
        ("25 percent", Fraction(1, 4)),
        ("$18", 18),
        (r"\$18.00", 18),
        ("-$5", -5),
        ("1.5e3", 1500),
        ("x = 5", 5),
        ("5 apples", 5),
        (r"5\text{ cm}", 5),
        ("007", 7),
    ],
)
def test_read(text: str, value: int | Fraction) -> None:
    assert parse_number(text).value == value


REFUSED = """
five|3 or 4|3 to 4|3, 4|3 4|1,23|12,34|1.2.3|--3|-$-3|3/0|1/2/3|3+4|3 + 4 = 7|٣|１|3²|5 dozen|2 million|about 5|nan|inf|1e99999
0x10|1_000|3 and 4|5 hours 3 minutes|3!|2\\frac{1}{0}
"""


@pytest.mark.parametrize("text", ["", "9" * 500, "5\x00", *REFUSED.strip().replace("\n", "|").split("|")])
def test_refused(text: str) -> None:
    with pytest.raises(NotANumber):
        parse_number(text)


@pytest.mark.parametrize(
    ("gold", "text", "status"),
    [
        ("4", "Answer: 4", "ok"),
        (4, "2+2=4. ANSWER:4.", "ok"),
        ("4", "**Answer:** 4", "ok"),
        ("4", "**Answer: 4**", "ok"),
        ("4", "Answer:\n4", "ok"),
        ("4", "The answer is 4.", "ok"),
        ("4", r"So \boxed{4}.", "ok"),
        ("4", r"Answer: \boxed{4}", "ok"),
        ("4", "Answer: 3 Answer: 4", "ok"),
        ("3", "Answer: 3 Answer: 4", "wrong"),
        ("4", "Answer: 3 or 4", "malformed"),
        ("4", "4", "malformed"),
        ("4", "Answer: ", "malformed"),
        ("4", r"\boxed{4", "malformed"),
        ("4", "", "malformed"),
        ("0", "", "malformed"),
        ("44", "Answer: 4", "wrong"),
        ("steps\n#### 1,250", "Answer: 1250", "ok"),
        ({"value": "90", "unit": "minutes"}, "Answer: 90", "ok"),
        ({"value": "90", "unit": "minutes"}, "Answer: 90 min", "ok"),
        ({"value": "90", "unit": "minutes"}, "Answer: 90 hours", "wrong"),
        ({"value": "90", "unit": "minutes"}, "Answer: 1.5 hours", "wrong"),
        ("50%", "Answer: 50", "ok"),
        ("50", "Answer: 50%", "ok"),
        ("0.5", "Answer: 50%", "ok"),
        ("1", "Answer: 1%", "wrong"),
        ("1/3", "Answer: 0.3333", "wrong"),
        (None, "Answer: 4", "unverifiable"),
        (True, "Answer: 1", "unverifiable"),
        ("four", "Answer: 4", "unverifiable"),
        ({"unit": "m"}, "Answer: 4", "unverifiable"),
    ],
)
def test_judged(gold: object, text: str, status: str) -> None:
    verdict = judge(gold, text)
    assert verdict.status == status
    assert verdict.reward == (1.0 if status == "ok" else 0.0)


def test_marked_false_reads_the_last_line() -> None:
    assert judge("18", "First 20.\nThe total is \\$18.", marked=False).status == "ok"
    assert judge("18", "First 18.\nThe total is unclear.", marked=False).status == "malformed"
    assert judge("18", "The total is \\$18.").status == "malformed"


def test_ten_megabytes_are_malformed() -> None:
    verdict = judge("4", "Answer: " + "4" * 10_000_000)
    assert verdict.status == "malformed" and "longer" in verdict.feedback


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_no_text_raises(text: str) -> None:
    assert judge("4", text).status in ("malformed", "wrong", "ok")
    assert judge("4", "Answer: " + text).status in ("malformed", "wrong", "ok")


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.fractions(max_denominator=10**6))
def test_every_fraction_is_read_back(value: Fraction) -> None:
    assert parse_number(str(value)).value == value

"""No text, however crafted, lets any verifier hold up the event loop: what is slow runs in a worker that can be killed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from posttrain import plugins
from posttrain.contracts.verifiers import attempt
from posttrain.types import ToolCall, Verdict
from posttrain.verifiers._base import MAX_ANSWER_CHARS, Verifier

BLOCKED = 0.25  # seconds of this process's own time, whatever the machine does besides
REWARD = "def reward(trajectory):\n    return float(len(trajectory.text) < 9)\n"
CONSTRAINTS = ("num_words", "num_lines", "uppercase", "alphabetical", "all_different", "real_letters")
GOLDS: dict[str, list[Any]] = {
    "code": [
        {"entry": "f", "cases": [{"args": [1], "expected": 2}]},
        {"entry": "f", "tests": "def check(c):\n    assert c(1) == 2\n"},
    ],
    "citations": [{"value": "tea", "ids": [1]}],
    "constraints": [[{"kind": kind, "value": 3} for kind in CONSTRAINTS]],
    "exact": ["ab", ["ab", "cd"]],
    "function": ["4"],
    "json_schema": [{"a": {"b": [1, 2]}}],
    "math": ["4173", "x + 1"],
    "number": ["4173"],
    "repository": ['{"module": "m", "entry": "f", "cases": [{"args": [1], "expected": 2}]}'],
    "sql": ["SELECT a FROM t"],
    "tool_calls": [{"calls": [{"name": "f", "arguments": {"a": 1}}]}, {"accepted": [{"f": {"a": ["x", "y"]}}] * 8}],
}
PRIVATE: dict[str, dict[str, Any]] = {"sql": {"schema": "CREATE TABLE t(a)", "instances": [{"t": [[1]]}]}}
MARKS = [
    *(
        "Answer: ",
        "answer",
        "The answer is ",
        "the final ",
        "\\boxed{",
        "\\text{",
        "\\frac{1}{",
        "\\(",
        "\\)",
        "$",
        "**",
        "*",
        "_",
        "`",
    ),
    *(
        "```",
        "```sql",
        "```json",
        "[1]",
        "[1, 2],",
        " , ",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        '{"',
        '":',
        '"k":[',
        "0,",
        '"',
        "\\",
        "\\u0041",
    ),
    *(
        "9",
        "-",
        ".",
        "1e9",
        "1/",
        "%",
        "!",
        "^",
        "a",
        "x ",
        "the ",
        "tea ",
        "select ",
        "with ",
        "/*",
        "--",
        " ",
        "\t",
        "\r",
        "\n",
        "|",
    ),
    *("\u0301\u0327", "\u0130", "\u2028", "\x00", "\ud800"),
]
PIECES = st.sampled_from(MARKS)
SIZES = st.sampled_from([1, 30, 1_900, 7_900, 19_900, 99_900, MAX_ANSWER_CHARS - 100, 10 * MAX_ANSWER_CHARS])


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str, int, str]:
    """A few pieces, a stretch of them and how often it repeats (to the size of one of the bounds), a few pieces."""
    repeated = "".join(draw(st.lists(PIECES, min_size=1, max_size=4))) or " "
    before, after = ("".join(draw(st.lists(PIECES, max_size=4))) for _ in range(2))
    return before, repeated, draw(SIZES) // len(repeated), after


def verifier(name: str, path: Path) -> Verifier:
    options: dict[str, Any] = {}
    if name == "function":
        (path / "reward.py").write_text(REWARD)
        options["path"] = str(path / "reward.py")
    found: Verifier = plugins.build("verifiers", name, **options)
    return found


def judged(judge: Verifier, name: str, gold: Any, text: str, calls: tuple[ToolCall, ...] = ()) -> tuple[Verdict, float]:
    tried = attempt(gold, text, **PRIVATE.get(name, {}))
    tried = replace(tried, turns=(tried.turns[0], replace(tried.turns[1], tool_calls=calls)))
    start = time.process_time()
    verdict = asyncio.run(judge.judge(tried))
    return verdict, time.process_time() - start


@pytest.mark.parametrize("name", plugins.names("verifiers"))
def test_no_text_holds_up_the_event_loop(name: str, tmp_path: Path) -> None:
    judge = verifier(name, tmp_path)

    @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(texts())
    @example(("```", " ", 990_000, "x"))
    @example(("```sql", "\t", 7_000, "x"))
    @example(("a", "!", 19_000, "a"))
    @example(('{"' + "k" * 50_000 + '":[', "0,", 24_000, "0]}"))
    @example(("", "9", 99_000, ""))
    @example(("Answer: ", "9", 990_000, ""))
    @example(("", "[", 99_000, ""))
    @example(("", "the ", 249_000, ""))
    def check(parts: tuple[str, str, int, str]) -> None:
        before, repeated, times, after = parts
        text = before + repeated * times + after
        for gold in GOLDS[name]:
            verdict, took = judged(judge, name, gold, text)
            assert took < BLOCKED, f"{took:.2f} s"
            assert verdict.status in ("wrong", "malformed", "ok")

    check()


def test_no_tool_calls_hold_up_the_event_loop(tmp_path: Path) -> None:
    judge = verifier("tool_calls", tmp_path)
    attacks = [
        [ToolCall(name="f", arguments={"a": -1})] * 100_000,
        [ToolCall(name=f"f{i}") for i in range(100_000)],
        [ToolCall(name="f", arguments={"a": "\u00e9" * 900_000})] * 8,
        [ToolCall(name="f", arguments={"k" * 900_000: 1})] * 8,
        [ToolCall(name="f", arguments={"a": [[[["x"] * 100_000]]]})] * 8,
    ]
    for calls in attacks:
        for gold in GOLDS["tool_calls"]:
            verdict, took = judged(judge, "tool_calls", gold, "", tuple(calls))
            assert verdict.status in ("wrong", "malformed") and took < BLOCKED, (calls[0].name, took)


def test_an_attempt_that_says_absurdly_much_in_any_turn_is_malformed(tmp_path: Path) -> None:
    tried = attempt("4", "Answer: 4")
    early = replace(tried.turns[1], text="x" * (MAX_ANSWER_CHARS + 1))
    asked = replace(tried.turns[0], text="x" * (MAX_ANSWER_CHARS + 1))
    number = verifier("number", tmp_path)
    assert asyncio.run(number.judge(replace(tried, turns=(tried.turns[0], early, tried.turns[1])))).status == "malformed"
    assert asyncio.run(number.judge(replace(tried, turns=(asked, tried.turns[1])))).status == "ok"

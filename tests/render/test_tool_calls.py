"""Reading tool calls: what is sound comes back, everything else is refused with its reason, in linear time."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.render.tool_calls import describe, read, said, write
from posttrain.types import Message, ToolCall, ToolSpec

NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
STRINGS = st.text('aä"\\\n{}<', max_size=5) | st.sampled_from(["</tool_call>", "<tool_call>x", "\\u003c"])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(STRINGS, JSON, max_size=3)
CALLS = st.lists(st.tuples(st.text("abc_", min_size=1, max_size=8), ARGUMENTS), max_size=3)


@settings(deadline=None)
@given(CALLS, st.sampled_from(["", "Let me see.", "a < b > c"]))
def test_what_is_written_is_read(calls: list[tuple[str, dict[str, object]]], content: str) -> None:
    made = tuple(ToolCall(name=n, arguments=a, id=str(i)) for i, (n, a) in enumerate(calls))
    text = said(Message(role="assistant", content=content, tool_calls=made))
    assert read(text) == (made, "")


def call(body: str) -> str:
    """Inside its tags."""
    return f"<tool_call>{body}</tool_call>"


GOOD = call('{"name": "f", "arguments": {}}')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call>", "without </tool_call>"),
        ('<tool_call>{"name": "f"}', "without </tool_call>"),
        (GOOD + "<tool_call>", "without </tool_call>"),
        ("</tool_call>", "without <tool_call>"),
        (GOOD + "</tool_call>", "without <tool_call>"),
        ("</tool_call>" + GOOD, "without <tool_call>"),
        (call(""), "not JSON"),
        (call("{'name': 'f'}"), "not JSON"),
        (call('{"name": "f", "arguments": {}} extra'), "not JSON"),
        (call(GOOD), "not JSON"),
        (call("[]"), "a list"),
        (call("null"), "null"),
        (call('"f"'), "a string"),
        (call("{}"), "no name"),
        (call('{"name": ""}'), "a string"),
        (call('{"name": 3}'), "a number"),
        (call('{"name": "f", "arguments": "{}"}'), "arguments are a string"),
        (call('{"name": "f", "arguments": null}'), "arguments are null"),
        (call('{"name": "f", "args": {}}'), "unknown key 'args'"),
        (call('{"name": "f", "name": "g"}'), "duplicate key 'name'"),
        (call('{"name": "f", "arguments": {"a": {"b": 1, "b": 2}}}'), "duplicate key 'b'"),
        (call('{"name": "f", "arguments": {"a": NaN}}'), "NaN"),
        (call('{"name": "f", "arguments": {"a": -Infinity}}'), "Infinity"),
        (call('{"name": "f", "arguments": {"a": 1e999}}'), "beyond a 64-bit number"),
        (call('{"name": "f", "arguments": {"a": ' + "1" * 5000 + "}}"), "number is too long"),
        (call('{"name": "f", "arguments": {"a": "\\ud800"}}'), "surrogate"),
        (call('{"name": "f", "arguments": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}"), "nested"),
        (GOOD + call("x"), "tool call 2"),
    ],
)  # fmt: skip
def test_what_is_unsound_is_refused_whole(text: str, reason: str) -> None:
    calls, why = read(text)
    assert calls == () and reason in why
    assert len(why) < 200


def test_text_around_calls_is_free() -> None:
    calls, why = read(f"I call twice: {GOOD} and {GOOD}, then wait.")
    assert [c.id for c in calls] == ["0", "1"] and not why
    assert read("no call, but <tool_response> and < tool_call >") == ((), "")


def test_arguments_may_be_left_out() -> None:
    assert read(call('{"name": "now"}')) == ((ToolCall(name="now", arguments={}, id="0"),), "")


def test_nothing_is_evaluated(tmp_path: object) -> None:
    calls, why = read(call("__import__('os').system('true')"))
    assert calls == () and "not JSON" in why


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 900_000,
        "</tool_call>" * 900_000,
        GOOD * 200_000,
        call('{"name": "f", "arguments": {"a": "' + "x" * 10_000_000 + '"}}'),
        call('{"name": "f", "arguments": {"a": [' + "1," * 5_000_000 + "1]}}"),
        call("{" * 10_000_000),
        "<" * 10_000_000,
        call('{"name": "f", "arguments": {' + ",".join(f'"{i}": 0' for i in range(500_000)) + "}}"),
    ],
    ids=["open", "close", "many", "long string", "long list", "braces", "angles", "many keys"],
)  # fmt: skip
def test_ten_megabytes_in_linear_time(text: str) -> None:
    started = time.process_time()
    read(text)
    assert time.process_time() - started < 5.0


def test_tools_are_described_one_a_line() -> None:
    text = describe([ToolSpec(name="add", description="Adds\nnumbers."), ToolSpec(name="now")])
    lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"name": "') and "description" in line]
    assert [x["name"] for x in lines] == ["add", "now"]
    assert read(text.replace('"the tool"', '"add"').split("write ")[1].split(" and stop")[0])[0][0].name == "add"
    assert write([ToolCall(name="now")]) in "<tool_call>" + '{"name": "now", "arguments": {}}' + "</tool_call>"

"""Chat messages in OpenAI's format."""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.datasets.messages import messages, tools
from posttrain.errors import UsageError
from posttrain.types import Message, ToolCall, ToolSpec


def test_a_conversation_with_a_tool() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    said = messages(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "1+"}, {"type": "text", "text": "1?"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
            {"role": "assistant", "content": "2"},
        ],
        "f, line 1",
    )
    assert said == (
        Message(role="system", content="Be brief."),
        Message(role="user", content="1+1?"),
        Message(role="assistant", tool_calls=(ToolCall(name="add", arguments={"a": 1}, id="c1"),)),
        Message(role="tool", content="2", tool_call_id="c1", name="add"),
        Message(role="assistant", content="2"),
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "must be a list"),
        ("hi", "must be a list"),
        (
            [{"role": "user", "content": "x"}, {"role": "asistant", "content": "y"}],
            "message 2 has the role 'asistant'. Did you mean 'assistant'",
        ),
        ([{"content": "y"}], "message 1 has the role 'None'"),
        ([{"role": "user", "content": 3}], "content must be text"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}], "are not JSON"),
        ([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}], "needs a name"),
    ],
)
def test_what_cannot_be_read_is_named(value: Any, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        messages(value, "f, line 1")
    assert str(caught.value).startswith("f, line 1") and says in str(caught.value)


def test_tools() -> None:
    spec = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {}}})
    inner = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {}}}}
    assert tools([{"type": "function", "function": inner}, inner], "p") == (spec, spec)
    assert tools(None, "p") == () and tools('[{"name": "x"}]', "p") == (ToolSpec(name="x"),)
    for bad in ("[", {"name": "x"}, [{"type": "function"}]):
        with pytest.raises(UsageError, match="p: "):
            tools(bad, "p")

"""Chat messages as OpenAI's format writes them -> ``Message`` and ``ToolSpec``."""

from __future__ import annotations

import json
from typing import Any, Literal, cast

from posttrain.errors import UsageError, nearest
from posttrain.types import Message, ToolCall, ToolSpec

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}


def messages(value: Any, place: str) -> tuple[Message, ...]:
    """A list of messages. Raises ``UsageError`` naming the place and the message that cannot be read."""
    if not isinstance(value, list) or not value:
        raise UsageError(
            f'{place}: messages must be a list such as [{{"role": "user", "content": "Hi"}}], got {str(value)[:80]!r}'
        )
    return tuple(_message(m, f"{place}, message {i}") for i, m in enumerate(value, start=1))


def _message(value: Any, place: str) -> Message:
    if not isinstance(value, dict) or value.get("role") not in _ROLES:
        role = value.get("role") if isinstance(value, dict) else value
        raise UsageError(f"{place} has the role {str(role)[:80]!r}.{nearest(str(role), _ROLES)}")
    return Message(
        role=cast(Literal["system", "user", "assistant", "tool"], _ROLES[value["role"]]),
        content=_content(value.get("content"), place),
        tool_calls=tuple(_call(c, place) for c in value.get("tool_calls") or ()),
        tool_call_id=value.get("tool_call_id") or "",
        name=value.get("name") or "",
    )


def _content(value: Any, place: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in value):
        return "".join(str(p.get("text", "")) for p in value)
    raise UsageError(f"{place}: content must be text or a list of text parts, got {str(value)[:80]!r}")


def _call(value: Any, place: str) -> ToolCall:
    function = value.get("function", value) if isinstance(value, dict) else {}
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as error:
            raise UsageError(f"{place}: the arguments of a tool call are not JSON: {error}") from error
    if not isinstance(function.get("name"), str) or not isinstance(arguments, dict):
        raise UsageError(f"{place}: a tool call needs a name and an object of arguments, got {str(value)[:80]!r}")
    return ToolCall(name=function["name"], arguments=arguments, id=str(value.get("id") or ""))


def tools(value: Any, place: str) -> tuple[ToolSpec, ...]:
    """A list of tools, each ``{"type": "function", "function": {"name": ..., "parameters": {...}}}`` or the inner object."""
    if value is None:
        return ()
    if isinstance(value, str):  # some exports write the list as text
        try:
            value = json.loads(value)
        except ValueError as error:
            raise UsageError(f"{place}: tools are not JSON: {error}") from error
    if not isinstance(value, list):
        raise UsageError(f"{place}: tools must be a list, got {str(value)[:80]!r}")
    out = []
    for tool in value:
        inner = tool.get("function", tool) if isinstance(tool, dict) else {}
        if not isinstance(inner.get("name"), str):
            raise UsageError(f"{place}: a tool needs a name, got {str(tool)[:80]!r}")
        empty = {"type": "object", "properties": {}}
        out.append(
            ToolSpec(name=inner["name"], description=inner.get("description") or "", parameters=inner.get("parameters") or empty)
        )
    return tuple(out)

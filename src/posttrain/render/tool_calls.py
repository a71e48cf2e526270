"""Tool calls as text: how they are described to a policy, written, and read back. Nothing is ever evaluated.

The form is ``<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>``; a result comes back in ``<tool_response>``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from posttrain.types import Message, ToolCall, ToolSpec

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_ANGLE = "\\u003c"
RESPONSE_OPEN, RESPONSE_CLOSE = "<tool_response>", "</tool_response>"


class _Unreadable(ValueError):
    """Why a call's JSON is not taken."""


def describe(tools: Iterable[ToolSpec]) -> str:
    """The part of a system message that presents the tools to a policy whose template has no words for them."""
    lines = [
        json.dumps({"name": t.name, "description": t.description, "parameters": t.parameters}, ensure_ascii=False, default=dict)
        for t in tools
    ]
    return (
        "You may call tools. Each line describes one, its parameters as JSON Schema:\n"
        + "\n".join(lines)
        + f"\nTo call one, write {OPEN}"
        + '{"name": "the tool", "arguments": {"parameter": "value"}}'
        + f"{CLOSE} and stop; its result comes in {RESPONSE_OPEN}."
    )


def write(calls: Iterable[ToolCall]) -> str:
    """Calls as the policy would write them, one a line."""
    bodies = (
        json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False, default=dict) for call in calls
    )
    # A tag inside a string would end the call; JSON can write it otherwise.
    return "\n".join(f"{OPEN}{body.replace('<', _ANGLE) if OPEN in body or CLOSE in body else body}{CLOSE}" for body in bodies)


def said(message: Message) -> str:
    """What a policy says to make a message: its content, then its calls."""
    return "\n".join(part for part in (message.content, write(message.tool_calls)) if part)


def respond(content: str) -> str:
    """A tool's result as the policy reads it."""
    return f"{RESPONSE_OPEN}\n{content}\n{RESPONSE_CLOSE}"


def read(text: str) -> tuple[tuple[ToolCall, ...], str]:
    """(calls, why they could not be read). With a reason there are no calls: half a turn is never carried out.

    Refused: an opening without its end, an end without its opening, text that is not JSON, duplicate keys, NaN and
    infinities, lone surrogates, nesting beyond Python's stack, a name that is not a string, arguments that are not an
    object. Linear in the length of the text.
    """
    calls: list[ToolCall] = []
    at = 0
    while True:
        start, stray = text.find(OPEN, at), text.find(CLOSE, at)
        if start < 0:
            return ((), f"{CLOSE} without {OPEN}") if stray >= 0 else (tuple(calls), "")
        if 0 <= stray < start:
            return (), f"{CLOSE} without {OPEN}"
        if stray < 0:
            return (), f"{OPEN} without {CLOSE}"
        body = text[start + len(OPEN) : stray]
        try:
            calls.append(_call(body, str(len(calls))))
        except _Unreadable as e:
            return (), f"tool call {len(calls) + 1}: {e}"
        at = stray + len(CLOSE)


def _call(body: str, call_id: str) -> ToolCall:
    """One call from its JSON; raises _Unreadable."""
    try:
        value = json.loads(body, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except _Unreadable:
        raise
    except json.JSONDecodeError as e:
        raise _Unreadable(f"not JSON: {e.msg} at character {e.pos}") from None
    except RecursionError:
        raise _Unreadable("nested too deeply") from None
    except ValueError:  # an integer of thousands of digits
        raise _Unreadable("a number is too long") from None
    if not isinstance(value, dict):
        raise _Unreadable(f"not an object but {_kind(value)}")
    unknown = sorted(value.keys() - {"name", "arguments", "id"})
    if unknown:
        raise _Unreadable(f"unknown key {unknown[0][:40]!r}; the keys are name and arguments")
    name, arguments = value.get("name"), value.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise _Unreadable("no name" if name is None else f"the name is {_kind(name)}, not a string")
    if not isinstance(arguments, dict):
        raise _Unreadable(f"the arguments are {_kind(arguments)}, not an object")
    try:
        (json.dumps(value, ensure_ascii=False) if "\\u" in body else body).encode()
    except UnicodeEncodeError:
        raise _Unreadable("a lone surrogate is not text") from None
    return ToolCall(name=name, arguments=arguments, id=call_id)


def _kind(value: Any) -> str:
    """A JSON type in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without duplicate keys: which of two values was meant cannot be known."""
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Unreadable(f"duplicate key {key[:40]!r}")
            seen.add(key)
    return out


def _constant(name: str) -> float:
    raise _Unreadable(f"{name} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Unreadable(f"{text[:40]} is beyond a 64-bit number")
    return value

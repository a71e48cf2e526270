"""JSON as the standard has it (RFC 8259), read from hostile text: bounded before parsing, no duplicate keys, no NaN.

Python's own reader takes NaN, Infinity, 1e999 and duplicate keys, and recurses once a bracket.
"""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DIGITS = 300  # of one number; longer ones are an attack on the integer parser


class NotJson(ValueError):
    """Why a text is not acceptable JSON; the message may be shown to the policy."""


def read(text: str, *, max_chars: int = 100_000, max_depth: int = 32) -> Any:
    """The value written in ``text`` (white space around it is fine); raises ``NotJson`` on anything else."""
    if len(text) > max_chars:
        raise NotJson(f"longer than {max_chars:,} characters")
    if _depth(text) > max_depth:
        raise NotJson(f"nested deeper than {max_depth} levels")
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_float, parse_int=_integer
        )
    except json.JSONDecodeError as e:
        raise NotJson(f"not JSON: {e.msg} at character {e.pos}") from None


def same(expected: Any, got: Any, *, whole_floats: bool = False) -> bool:
    """Equality by type: true is not 1, "1" is not 1; an expected integer wants an integer (1.0 too with ``whole_floats``).

    An expected float takes an integer of the same value. The order of keys does not matter, that of items does.
    """
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and expected.keys() == got.keys()
            and all(same(v, got[k], whole_floats=whole_floats) for k, v in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(got, list)
            and len(expected) == len(got)
            and all(same(a, b, whole_floats=whole_floats) for a, b in zip(expected, got, strict=True))
        )
    if isinstance(expected, bool) or isinstance(got, bool) or not isinstance(expected, int | float):
        return type(expected) is type(got) and bool(expected == got)
    if isinstance(expected, int) and not isinstance(got, int):
        return whole_floats and isinstance(got, float) and got == expected
    return isinstance(got, int | float) and got == expected


def num_leaves(value: Any) -> int:
    """How many values there are that are not a filled object or array: ``{"a": [1, 2], "b": {}}`` has three."""
    if isinstance(value, dict | list) and value:
        return sum(num_leaves(item) for item in (value.values() if isinstance(value, dict) else value))
    return 1


def num_right(expected: Any, got: Any, *, whole_floats: bool = False) -> int:
    """How many leaves of ``expected`` have the same in their place in ``got``.

    Walks both at once: paths as texts would take the size of ``got`` squared, as a key may be as long as the answer.
    """
    if isinstance(expected, dict) and expected:
        shared = expected.keys() & got.keys() if isinstance(got, dict) else ()
        return sum(num_right(expected[key], got[key], whole_floats=whole_floats) for key in shared)
    if isinstance(expected, list) and expected:
        pairs = zip(expected, got, strict=False) if isinstance(got, list) else ()
        return sum(num_right(a, b, whole_floats=whole_floats) for a, b in pairs)
    return int(same(expected, got, whole_floats=whole_floats))


def _depth(text: str) -> int:
    """Deepest nesting of brackets outside strings, by one scan."""
    deepest = depth = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotJson("an object has the same key twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise NotJson(f"{name} is not JSON")


def _float(digits: str) -> float:
    value = float(digits) if len(digits) <= MAX_DIGITS else math.inf
    if not math.isfinite(value):
        raise NotJson("a number is too large")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise NotJson("a number is too large")
    return int(digits)

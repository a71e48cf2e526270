"""JSON as the standard has it (RFC 8259), read from hostile text: bounded before parsing, no duplicate keys, no NaN.

Python's own reader takes NaN, Infinity, 1e999 and duplicate keys, and recurses once a bracket.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
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


def leaves(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything that is not a filled object or array: ``{"a": [1, 2]}`` -> $.a[0] 1, $.a[1] 2."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for i, item in enumerate(value):
            yield from leaves(item, f"{path}[{i}]")
    else:
        yield path, value


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

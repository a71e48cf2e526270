"""Python values as typed JSON and back: what crosses between a program that is judged and the program that judges it.

Only plain values of exactly the built-in types cross, so nothing that the judged program defines - an object equal to
everything, a number that lies about itself - ever reaches a comparison. This text also runs inside the sandbox, where
nothing of posttrain can be imported: standard library only.
"""

import json
from typing import Any

MOST = 200_000  # nodes of one value
DEEPEST = 60
MOST_HASHED = 5_000  # members of a set or dict: all of one hash, they cost the square of their number
PLAIN_TYPES = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict)


def encode(value: Any) -> str:
    """The value as JSON text. Raises TypeError for what is no plain value, ValueError for what is too large or deep."""
    count = 0

    def node(x: Any, depth: int) -> Any:
        nonlocal count
        count += 1
        if count > MOST or depth > DEEPEST:
            raise ValueError("the value is too large or too deep to be compared")
        kind = type(x)
        if x is None or kind is bool or kind is str:
            return x
        if kind is int:
            return {"int": hex(x)} if abs(x) >= 1 << 53 else x
        if kind is float:
            return {"float": x.hex()}
        if kind is complex:
            return {"complex": [x.real.hex(), x.imag.hex()]}
        if kind is bytes:
            return {"bytes": x.hex()}
        if kind is list:
            return [node(y, depth + 1) for y in x]
        if kind is tuple:
            return {"tuple": [node(y, depth + 1) for y in x]}
        if isinstance(x, (set, frozenset, dict)) and len(x) > MOST_HASHED:
            raise ValueError("a set or dict has too many members to be compared")
        if kind is set or kind is frozenset:
            return {kind.__name__: [node(y, depth + 1) for y in sorted(x, key=repr)]}
        if kind is dict:
            return {"dict": [[node(k, depth + 1), node(v, depth + 1)] for k, v in x.items()]}
        if kind is type and x in PLAIN_TYPES:
            return {"type": x.__name__}
        if kind is range:
            return {"range": [x.start, x.stop, x.step]}
        if isinstance(x, dict) and kind.__module__ == "collections":  # Counter, defaultdict, OrderedDict: as a dict
            return {"dict": [[node(k, depth + 1), node(v, depth + 1)] for k, v in dict.items(x)]}
        if kind.__name__ == "deque" and kind.__module__ == "collections":
            return [node(y, depth + 1) for y in list(x)]
        raise TypeError("a value of type " + kind.__name__ + " is not a plain value")

    return json.dumps(node(value, 0))


def decode(text: str) -> Any:
    """The inverse of ``encode``. Raises ValueError for anything else."""

    count = 0

    def value(x: Any, depth: int) -> Any:
        nonlocal count
        count += 1
        if count > MOST or depth > DEEPEST + 1:
            raise ValueError("too large or too deep")
        if x is None or isinstance(x, (bool, str, int)):
            return x
        if isinstance(x, list):
            return [value(y, depth + 1) for y in x]
        if isinstance(x, dict) and len(x) == 1:
            ((kind, inner),) = x.items()
            if kind == "int":
                return int(inner, 16)
            if kind == "float":
                return float.fromhex(inner)
            if kind == "complex":
                return complex(float.fromhex(inner[0]), float.fromhex(inner[1]))
            if kind == "bytes":
                return bytes.fromhex(inner)
            if kind == "type":
                return {t.__name__: t for t in PLAIN_TYPES}[inner]
            if kind == "range":
                return range(*inner)
            if kind in ("set", "frozenset", "dict") and len(inner) > MOST_HASHED:
                raise ValueError("too many members")
            if kind in ("tuple", "set", "frozenset"):
                return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](value(y, depth + 1) for y in inner)
            if kind == "dict":
                return {value(k, depth + 1): value(v, depth + 1) for k, v in inner}
        raise ValueError("not a typed value")

    try:
        return value(json.loads(text), 0)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, AttributeError, ArithmeticError) as error:
        raise ValueError("not a typed value: " + str(error)) from None

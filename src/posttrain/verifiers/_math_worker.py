"""Runs in a killable worker: syntax trees to sympy, and whether two mean the same. Only trees of ours arrive here, never text."""

from __future__ import annotations

from typing import Any

import sympy
from sympy import FiniteSet, Function, I, Interval, Rational, S, Symbol, Union, oo

from posttrain.verifiers._math_parser import Node

DIGITS = 110  # to which constants must agree
PROBE_DIGITS = 40
# What sympy raises on expressions that have no value or that it does not handle; anything else is a bug and escapes.
UNDEFINED = (
    TypeError,
    ValueError,
    ZeroDivisionError,
    OverflowError,
    AttributeError,
    NotImplementedError,
    RecursionError,
    KeyError,
)
_ALIKE = "sin cos tan cot sec csc asin acos atan sinh cosh tanh exp sqrt gcd lcm log"  # named as in sympy
_CALLS: dict[str, Any] = {name: getattr(sympy, name) for name in _ALIKE.split()}
_CALLS |= {"ln": sympy.log, "log10": lambda x: sympy.log(x, 10), "abs": sympy.Abs, "ceil": sympy.ceiling, "floor": sympy.floor}
_CALLS |= {"min": sympy.Min, "max": sympy.Max, "binom": sympy.binomial}
_NAMED = {"e": sympy.E, "i": I, "pi": sympy.pi, "infty": oo}


def compare(gold: Node, got: Node) -> dict[str, Any]:
    """``{"equal": bool, "fault": str}``; ``fault``: "gold" when it does not even equal itself, "answer" when only that fails."""
    try:
        return {"equal": bool(same(gold, got)), "fault": ""}
    except UNDEFINED:
        pass
    try:
        sound = bool(same(gold, gold))
    except UNDEFINED:
        sound = False
    return {"equal": False, "fault": "answer" if sound else "gold"}


def same(gold: Node, got: Node) -> bool:
    """Whether two trees mean the same; what the gold is decides how the other is read."""
    if gold == got:
        return True
    if gold[0] == got[0] == "rel" and not (_is_set(gold) or _is_set(got)):
        return _same_relations(gold, got)
    gold, got = _plain(gold), _plain(got)
    if gold == got:
        return True
    if gold[0] == "tuple" and len(gold[1]) == 2 and _is_set(got) and got[0] != "set":
        gold = ("interval", *gold[1], "()")
    if _is_set(gold) or (gold[0] == "rel" and _is_set(got)):
        return _same_sets(gold, got)
    if gold[0] == "rel":
        return _same_relations(gold, got)
    if gold[0] in ("tuple", "matrix"):
        return _same_items(gold, got)
    if gold[0] == "text" or got[0] in ("text", "tuple", "matrix", "set", "interval", "union", "rel", "in"):
        return False
    return _same_values(expression(gold), expression(got))


def _plain(node: Node) -> Node:
    """``x = 3`` as 3, ``x in S`` as S, ``a +- b`` as a set."""
    if node[0] == "rel" and len(node[1]) == 3 and node[1][1] == "=" and node[1][0][0] == "sym":
        return _plain(node[1][2])
    if node[0] == "in":
        inner = _plain(node[2])
        return ("interval", *inner[1], "()") if inner[0] == "tuple" and len(inner[1]) == 2 else inner
    if node[0] == "pm":
        return ("set", (("add", node[1], node[2]), ("add", node[1], ("neg", node[2]))))
    return node


def _is_set(node: Node) -> bool:
    """Sets, intervals, unions, and inequalities in one symbol."""
    return node[0] in ("set", "interval", "union") or (
        node[0] == "rel" and any(op in ("<", "<=", ">", ">=", "!=") for op in node[1][1::2])
    )


def _same_sets(gold: Node, got: Node) -> bool:
    """As sympy sets; a bare list may stand for a finite set, and ``(a, b)`` for the open interval that the gold is."""
    if got[0] == "tuple":
        got = ("interval", *got[1], "()") if gold[0] != "set" and len(got[1]) == 2 else ("set", got[1])
    left, right = _set(gold), _set(got)
    if isinstance(left, FiniteSet) and isinstance(right, FiniteSet):
        if len(left) != len(right):
            return False
        rest = list(right)
        for item in left:
            match = next((r for r in rest if _same_values(item, r)), None)
            if match is None:
                return False
            rest.remove(match)
        return True
    return bool(left == right or (left - right == S.EmptySet and right - left == S.EmptySet))


def _set(node: Node) -> Any:
    """A sympy set."""
    node = _plain(node)
    kind = node[0]
    if kind == "set":
        return FiniteSet(*(expression(_plain(item)) for item in node[1]))
    if kind == "interval":
        return Interval(expression(node[1]), expression(node[2]), node[3][0] == "(", node[3][1] == ")")
    if kind == "union":
        return Union(*(_set(item) for item in node[1]))
    if kind == "rel":
        return _solutions(node)
    if kind == "tuple":
        return Interval.open(*(expression(item) for item in node[1]))
    return FiniteSet(expression(node))


def _solutions(node: Node) -> Any:
    """The real solutions of a chain such as ``1 < x <= 2`` in its one symbol, which stands alone in the middle or on a side."""
    parts = node[1]
    out: Any = S.Reals
    for left, op, right in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
        if left[0] == "sym" and left[1] not in _NAMED:
            bound, op = expression(right), op
        elif right[0] == "sym" and right[1] not in _NAMED:
            bound, op = expression(left), {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(op, op)
        else:
            raise ValueError("an inequality is not solved for its symbol")
        piece = {
            "<": lambda b: Interval.open(-oo, b),
            "<=": lambda b: Interval(-oo, b),
            ">": lambda b: Interval.open(b, oo),
            ">=": lambda b: Interval(b, oo),
            "!=": lambda b: S.Reals - FiniteSet(b),
            "=": lambda b: FiniteSet(b),
        }[op](bound)
        out = out.intersect(piece)
    return out


def _same_relations(gold: Node, got: Node) -> bool:
    """Equations that differ by a constant factor only."""
    if got[0] != "rel" or len(gold[1]) != 3 or len(got[1]) != 3 or not gold[1][1] == got[1][1] == "=":
        return False
    left = sympy.expand(expression(gold[1][0]) - expression(gold[1][2]))
    right = sympy.expand(expression(got[1][0]) - expression(got[1][2]))
    if left == 0 or right == 0:
        return bool(left == right)
    factor = sympy.simplify(right / left)
    return bool(factor.is_number and factor.is_finite and factor != 0)


def _same_items(gold: Node, got: Node) -> bool:
    """Item by item, in order."""
    if gold[0] != got[0] or len(gold[1]) != len(got[1]):
        return False
    pairs = zip(gold[1], got[1], strict=True)
    if gold[0] == "matrix":
        return all(len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True)) for a, b in pairs)
    return all(same(a, b) for a, b in pairs)


def expression(node: Node) -> Any:
    """A sympy expression. Raises one of ``UNDEFINED`` for a node that is none."""
    kind = node[0]
    if kind == "num":
        return Rational(node[1])
    if kind == "sym":
        return _NAMED.get(node[1]) if node[1] in _NAMED else Symbol(node[1])
    if kind == "call":
        return _CALLS[node[1]](*(expression(a) for a in node[2]))
    if kind == "apply":
        return Function(node[1])(*(expression(a) for a in node[2]))
    if kind in ("neg", "fact", "percent"):
        inner = expression(node[1])
        return -inner if kind == "neg" else sympy.factorial(inner) if kind == "fact" else inner / 100
    if kind not in ("add", "mul", "div", "pow"):
        raise ValueError(f"{kind} is no number")
    left, right = expression(node[1]), expression(node[2])
    if kind == "add":
        return left + right
    if kind == "mul":
        return left * right
    if kind == "pow":
        return left**right
    if right == 0:
        raise ZeroDivisionError
    return left / right


def _same_values(gold: Any, got: Any) -> bool:
    """Equal wherever the gold has a real value (everywhere, if it never has one). Exact first, then many digits."""
    if gold.has(sympy.nan, sympy.zoo) or got.has(sympy.nan, sympy.zoo):
        raise ValueError("undefined")
    difference = gold - got
    if difference == 0:
        return True
    symbols = sorted(gold.free_symbols | got.free_symbols, key=str)
    if not symbols:
        return _same_constants(gold, got, difference)
    agree = complex_agree = 0
    for k in range(24):
        point = {s: Rational((-1) ** (k + at) * (7 * k + 5 * at + 3), 2 * at + 5) for at, s in enumerate(symbols)}
        a, b = gold.subs(point), got.subs(point)
        if a.has(sympy.nan, sympy.zoo, oo):
            continue
        near = _close(a, b, PROBE_DIGITS)
        if a.is_real or sympy.im(a.evalf(20)) == 0:
            if not near:
                return False
            agree += 1
        else:
            complex_agree += near
    if agree >= 4:
        return True
    return bool(complex_agree >= 12 if not agree else sympy.simplify(difference) == 0)


def _same_constants(gold: Any, got: Any, difference: Any) -> bool:
    """Constants to ``DIGITS`` digits, relative to their size; against zero only an exact proof counts."""
    if gold in (oo, -oo) or got in (oo, -oo):
        return bool(gold == got)
    if gold.is_Rational and got.is_Rational:
        return False
    if gold.is_zero or got.is_zero:
        return bool(sympy.simplify(difference) == 0)
    return _close(gold, got, DIGITS)


def _close(a: Any, b: Any, digits: int) -> bool:
    """|a - b| <= 10^-(digits - 10) * |a|, with the difference worked out to full precision."""
    if b.has(sympy.nan, sympy.zoo, oo):
        return False
    size = sympy.Abs(a).evalf(30)
    if size == 0:
        return bool(sympy.Abs(b).evalf(30) == 0)
    gap = sympy.Abs(a.evalf(digits) - b.evalf(digits)).evalf(30)
    return bool(gap <= size * Rational(1, 10 ** (digits - 10)))

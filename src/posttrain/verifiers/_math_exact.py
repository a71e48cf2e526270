"""What can be compared exactly without a computer algebra system: rational constants and polynomials. Cheap and bounded."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from posttrain.verifiers._math_parser import Node

MAX_DIGITS: Final = 30_000  # of a number that is worked out
MAX_TERMS: Final = 200
MAX_POWER: Final = 24

Monomial = tuple[tuple[str, int], ...]
Polynomial = dict[Monomial, Fraction]


class TooLarge(ValueError):
    """Working it out would give a number or a polynomial beyond all use."""


def constant(node: Node) -> Fraction | None:
    """The value of a rational constant, None for anything else. Raises ``TooLarge``; ``ZeroDivisionError`` for 1/0."""
    kind = node[0]
    if kind == "num":
        return Fraction(node[1])
    if kind in ("neg", "percent", "fact"):
        value = constant(node[1])
        if value is None:
            return None
        return -value if kind == "neg" else value / 100 if kind == "percent" else _factorial(value)
    if kind in ("add", "mul", "div", "pow"):
        left, right = constant(node[1]), constant(node[2])
        if left is None or right is None:
            return None
        if kind == "pow":
            return _power(left, right)
        if kind == "div":
            return left / right
        value = left + right if kind == "add" else left * right
        _bounded(value)
        return value
    return None


def _bounded(value: Fraction) -> None:
    """Raises ``TooLarge``."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_DIGITS * 3.33:
        raise TooLarge


def _factorial(value: Fraction) -> Fraction | None:
    """n! of a whole number."""
    if value.denominator != 1 or value < 0:
        return None
    if value > 8_000:
        raise TooLarge
    return Fraction(math.factorial(value.numerator))


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """A whole power; None for roots."""
    if exponent.denominator != 1:
        return None
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) != 1 and base != 0 and abs(exponent) * bits > MAX_DIGITS * 3.33:
        raise TooLarge
    if abs(base) == 1:
        return base if exponent.numerator % 2 else Fraction(1)
    return base**exponent.numerator


def polynomial(node: Node) -> Polynomial | None:
    """Monomials and coefficients of a polynomial with rational coefficients, None for anything else. Raises ``TooLarge``."""
    value = constant(node)
    if value is not None:
        return {(): value} if value else {}
    kind = node[0]
    if kind == "sym":
        return None if node[1] in ("e", "i", "pi", "infty") else {((node[1], 1),): Fraction(1)}
    if kind == "neg":
        inner = polynomial(node[1])
        return None if inner is None else {m: -c for m, c in inner.items()}
    if kind == "div":
        inner, under = polynomial(node[1]), constant(node[2])
        return None if inner is None or under is None else {m: c / under for m, c in inner.items()}
    if kind == "pow":
        inner, exponent = polynomial(node[1]), constant(node[2])
        if inner is None or exponent is None or exponent.denominator != 1 or exponent < 0:
            return None
        if exponent > MAX_POWER:
            raise TooLarge
        out: Polynomial = {(): Fraction(1)}
        for _ in range(exponent.numerator):
            out = _product(out, inner)
        return out
    if kind in ("add", "mul"):
        left, right = polynomial(node[1]), polynomial(node[2])
        if left is None or right is None:
            return None
        return _product(left, right) if kind == "mul" else _total(left, right)
    return None


def _total(left: Polynomial, right: Polynomial) -> Polynomial:
    """The sum, without zero terms."""
    out = dict(left)
    for monomial, c in right.items():
        out[monomial] = out.get(monomial, Fraction(0)) + c
    return {m: c for m, c in out.items() if c}


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    """The product."""
    if len(left) * len(right) > MAX_TERMS**2 // 4:
        raise TooLarge
    out: Polynomial = {}
    for first, a in left.items():
        for second, b in right.items():
            powers = dict(first)
            for name, n in second:
                powers[name] = powers.get(name, 0) + n
            monomial = tuple(sorted(powers.items()))
            out[monomial] = out.get(monomial, Fraction(0)) + a * b
    if len(out) > MAX_TERMS:
        raise TooLarge
    return {m: c for m, c in out.items() if c}


def is_expanded(node: Node) -> bool:
    """Whether a polynomial is written as a sum of monomials, no two alike, and without anything left to multiply out."""
    seen: set[Monomial] = set()
    stack = [node]
    while stack:
        term = stack.pop()
        if term[0] == "add":
            stack += [term[1], term[2]]
        elif term[0] == "neg":
            stack.append(term[1])
        else:
            if not _single(term):
                return False
            value = polynomial(term)
            if value is None or len(value) != 1 or (monomial := next(iter(value))) in seen:
                return False
            seen.add(monomial)
    return True


def _single(term: Node) -> bool:
    """A monomial with at most one number in it."""
    numbers, stack = 0, [term]
    while stack:
        node = stack.pop()
        if node[0] == "num":
            numbers += 1
        elif node[0] == "div" and node[2][0] == "num":  # 3/2 x and x/2
            numbers += node[1][0] != "num"
            stack.append(node[1])
        elif node[0] == "mul":
            stack += [node[1], node[2]]
        elif not (node[0] == "sym" or (node[0] == "pow" and node[1][0] == "sym" and node[2][0] == "num")):
            return False
    return numbers <= 1


def check_size(node: Node) -> None:
    """Raises ``TooLarge`` where a constant inside would be beyond all use, so that no algebra system ever meets it."""
    stack = [node]
    while stack:
        item = stack.pop()
        if not isinstance(item, tuple) or not item:
            continue
        if item[0] in ("pow", "fact", "mul", "add"):
            try:
                constant(item)
            except ZeroDivisionError:
                continue
            if item[0] == "pow":
                exponent = constant(item[2])
                if exponent is not None and abs(exponent) > 2_000:
                    if constant(item) is None:
                        raise TooLarge
                elif exponent is None and item[2][0] == "pow":
                    raise TooLarge  # a tower of powers with something irrational in it
        stack += [part for part in item if isinstance(part, tuple)]

"""What can be compared exactly without a computer algebra system: rational constants and polynomials, within a budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from posttrain.verifiers._math_parser import Node

MAX_DIGITS: Final = 30_000  # of a number that is worked out
MAX_TERMS: Final = 200
MAX_POWER: Final = 24
MAX_WORK: Final = 50_000_000  # for one tree: about nanoseconds, but counted, so that a verdict is the same on any machine
_STEP: Final = 4_000  # of that, one operation on small fractions
_TERM: Final = 250  # ... one more term, or one more name in a term
_CONSTANT: Final = frozenset(["neg", "percent", "fact", "add", "mul", "div", "pow"])
_ALGEBRA: Final = _CONSTANT | {"num", "sym"}

Monomial = tuple[tuple[str, int], ...]
Polynomial = dict[Monomial, Fraction]


class TooLarge(ValueError):
    """Working it out would give a number or a polynomial beyond all use, or take too long."""


class Exact:
    """The exact values of a tree's parts, each worked out once, all of them together within ``MAX_WORK``.

    Raises ``TooLarge`` where a constant inside would be beyond all use, so that no algebra system ever meets it.
    """

    def __init__(self, tree: Node) -> None:
        self.tree = tree
        self._work = 0
        self._nodes = list(_parts(tree))
        self._values: dict[int, Fraction | ZeroDivisionError | None] = {}  # by id: the tree keeps its parts alive
        for node in reversed(self._nodes):  # parts before wholes, and no recursion: a chain of 600 terms is 600 deep
            self._values[id(node)] = self._worked_out(node)

    def constant(self) -> Fraction | None:
        """The value of a rational constant, None for anything else. Raises ``ZeroDivisionError`` for 1/0."""
        return self._value(self.tree)

    def polynomial(self) -> Polynomial | None:
        """Monomials and coefficients of a polynomial with rational coefficients, None for anything else.

        Raises ``TooLarge``, and ``ZeroDivisionError`` where a part divides by zero.
        """
        if any(node[0] not in _ALGEBRA for node in self._nodes):
            return None
        found: dict[int, Polynomial | None] = {}
        for node in reversed(self._nodes):
            found[id(node)] = self._terms(node, [found[id(part)] for part in node[1:] if isinstance(part, tuple)])
        return found[id(self.tree)]

    def _value(self, node: Node) -> Fraction | None:
        value = self._values[id(node)]
        if isinstance(value, ZeroDivisionError):
            raise value
        return value

    def _worked_out(self, node: Node) -> Fraction | ZeroDivisionError | None:
        """The value of a node whose parts are known; a division by zero is kept for whoever asks for it."""
        kind = node[0]
        if kind == "num":
            return Fraction(node[1])
        if kind not in _CONSTANT:
            return None
        try:
            parts = [self._value(part) for part in node[1:]]
            known = [part for part in parts if part is not None]
            value = self._operate(kind, *known) if len(known) == len(parts) else None
        except ZeroDivisionError as fault:
            return fault
        if kind == "pow" and value is None:
            exponent = parts[1]
            if abs(exponent) > 2_000 if exponent is not None else node[2][0] == "pow":
                raise TooLarge  # a tower of powers with something irrational in it
        return value

    def _operate(self, kind: str, left: Fraction, right: Fraction = Fraction(1)) -> Fraction | None:
        """One operation on known values."""
        if kind == "neg":
            return -left
        if kind == "fact":
            return self._factorial(left)
        if kind == "pow":
            return self._power(left, right)
        if kind == "add":
            return self._sum(left, right)
        return self._times(left, Fraction(1, 100) if kind == "percent" else 1 / right if kind == "div" else right)

    def _factorial(self, value: Fraction) -> Fraction | None:
        """n! of a whole number."""
        if value.denominator != 1 or value < 0:
            return None
        if value > 8_000:
            raise TooLarge
        n = value.numerator
        self._spend(_STEP + (n * n.bit_length() // 30) ** 2)
        return Fraction(math.factorial(n))

    def _power(self, base: Fraction, exponent: Fraction) -> Fraction | None:
        """A whole power; None for roots."""
        if exponent.denominator != 1:
            return None
        if abs(base) == 1:
            return base if exponent.numerator % 2 else Fraction(1)
        if base != 0:
            bits = abs(exponent.numerator) * max(base.numerator.bit_length(), base.denominator.bit_length())
            if bits > MAX_DIGITS * 3.33:
                raise TooLarge
            self._spend(_STEP + 2 * (bits // 30) ** 2)
        return base**exponent.numerator

    def _sum(self, left: Fraction, right: Fraction) -> Fraction:
        """left + right."""
        self._weigh(left, right)
        return _bounded(left + right)

    def _times(self, left: Fraction, right: Fraction) -> Fraction:
        """left * right."""
        self._weigh(left, right)
        return _bounded(left * right)

    def _weigh(self, left: Fraction, right: Fraction) -> None:
        """Pays for an operation on two fractions: quadratic in their digits, and a common divisor costs more than a product."""
        a, b = left.numerator.bit_length() // 30 + 1, left.denominator.bit_length() // 30 + 1
        c, d = right.numerator.bit_length() // 30 + 1, right.denominator.bit_length() // 30 + 1
        self._spend(_STEP + a * c + 3 * (a * d + b * c + b * d))

    def _spend(self, work: int) -> None:
        """Raises ``TooLarge`` once the budget is used up."""
        self._work += work
        if self._work > MAX_WORK:
            raise TooLarge

    def _terms(self, node: Node, parts: list[Polynomial | None]) -> Polynomial | None:
        """The polynomial of a node, from those of its parts."""
        value = self._value(node)
        if value is not None:
            return {(): value} if value else {}
        kind = node[0]
        if kind == "sym":
            return None if node[1] in ("e", "i", "pi", "infty") else {((node[1], 1),): Fraction(1)}
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if kind == "neg":
            return self._scaled(known[0], Fraction(-1))
        if kind == "add":
            return self._total(*known)
        if kind == "mul":
            return self._product(*known)
        constant = self._value(node[2]) if kind in ("div", "pow") else None
        if constant is None:
            return None
        if kind == "div":
            return self._scaled(known[0], 1 / constant)
        if constant.denominator != 1 or constant < 0:
            return None
        if constant > MAX_POWER:
            raise TooLarge
        out: Polynomial = {(): Fraction(1)}
        for _ in range(constant.numerator):
            out = self._product(out, known[0])
        return out

    def _scaled(self, terms: Polynomial, factor: Fraction) -> Polynomial:
        """Every coefficient times a factor other than 0."""
        return {m: self._times(c, factor) for m, c in terms.items()}

    def _total(self, left: Polynomial, right: Polynomial) -> Polynomial:
        """The sum, without zero terms."""
        self._spend(_STEP + _TERM * (len(left) + len(right)))
        out = dict(left)
        for monomial, c in right.items():
            out[monomial] = self._sum(out[monomial], c) if monomial in out else c
        return {m: c for m, c in out.items() if c}

    def _product(self, left: Polynomial, right: Polynomial) -> Polynomial:
        """The product, without zero terms."""
        if len(left) * len(right) > MAX_TERMS**2 // 4:
            raise TooLarge
        out: Polynomial = {}
        for first, a in left.items():
            for second, b in right.items():
                self._spend(_TERM * (len(first) + len(second)))
                powers = dict(first)
                for name, n in second:
                    powers[name] = powers.get(name, 0) + n
                monomial = tuple(sorted(powers.items()))
                c = self._times(a, b)
                out[monomial] = self._sum(out[monomial], c) if monomial in out else c
        if len(out) > MAX_TERMS:
            raise TooLarge
        return {m: c for m, c in out.items() if c}


def _parts(tree: Node) -> Iterator[Node]:
    """The tree, its parts, their parts ...; a whole always comes before its parts."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if node and isinstance(node[0], str):  # a bare tuple only groups parts
            yield node
        stack += [part for part in node if isinstance(part, tuple)]


def _bounded(value: Fraction) -> Fraction:
    """The value itself. Raises ``TooLarge``."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_DIGITS * 3.33:
        raise TooLarge
    return value


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
            value = Exact(term).polynomial()
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

"""Tokens -> a syntax tree of nested tuples, by recursive descent. Nothing is evaluated; depth and size are bounded.

Nodes: ("num", "1/2"), ("sym", "x"), ("call", "sin", (x,)), ("add", a, b), ("mul", a, b), ("div", a, b), ("pow", a, b),
("neg", a), ("fact", a), ("pm", a, b), ("apply", "f", (x,)), ("tuple", items), ("set", items), ("interval", low, high, "[)"),
("union", sets), ("rel", (a, "<", b, "<=", c)), ("in", x, set), ("matrix", rows), ("text", "even"), ("percent", a).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from posttrain.verifiers._math_lexer import CONSTANTS, FUNCTIONS, NotMath, Token, tokens

Node = tuple[Any, ...]

MAX_DEPTH: Final = 60
MAX_TOKENS: Final = 600
RELATIONS: Final = ("=", "<", "<=", ">", ">=", "!=")
_END: Final = Token("end", "")
_ALIASES: Final = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "lg": "log10",
    "infinity": "infty",
    "inf": "infty",
    "oo": "infty",
}


def parse(text: str) -> Node:
    """The tree of a whole text: ``parse("1/2 + x")`` -> ("add", ("div", ("num", "1"), ("num", "2")), ("sym", "x")).

    Plain words are a ("text", ...). Raises ``NotMath``.
    """
    found = tokens(text)
    if not found:
        raise NotMath("it is empty")
    if len(found) > MAX_TOKENS:
        raise NotMath(f"it has more than {MAX_TOKENS} parts")
    if all(t.kind in ("word", "name") for t in found) and any(t.kind == "word" for t in found):
        return ("text", " ".join(text.replace("\\text", "").strip("{} ").split()).casefold())
    while len(found) > 1 and found[-1].kind == "word" and found[-2] != Token("op", "^"):  # a unit
        found.pop()
    return _Parser(found).whole()


class _Parser:
    """A cursor over tokens."""

    def __init__(self, found: list[Token]) -> None:
        self.found = found
        self.at = 0
        self.depth = 0

    def whole(self) -> Node:
        """Everything: alternatives of lists of statements."""
        node = self.listed()
        options = [node]
        while self.take("or"):
            options.append(self.listed())
        if self.peek() != _END:
            raise NotMath(f"{self.peek().text!r} is not expected there")
        if len(options) == 1:
            return node
        if all(o[0] == "rel" for o in options):  # x = 1 or x = 2; a bare "1 or 2" is a hedge
            return ("union", tuple(options))
        raise NotMath("it leaves the answer open")

    def listed(self) -> Node:
        """Statements separated by commas: ``1, 2`` is a tuple without brackets."""
        items = [self.statement()]
        while self.take(",") or self.take(";"):
            items.append(self.statement())
        return items[0] if len(items) == 1 else ("tuple", tuple(items))

    def statement(self) -> Node:
        """A relation chain, a membership, a union of sets, or a sum."""
        first = self.sum()
        if self.take("in"):
            return ("in", first, self.sets(self.sum()))
        chain: list[Any] = [first]
        while self.peek().kind == "op" and self.peek().text in RELATIONS:
            chain += [self.next().text, self.sum()]
        return ("rel", tuple(chain)) if len(chain) > 1 else self.sets(first)

    def sets(self, first: Node) -> Node:
        """What follows a set: further sets."""
        items = [first]
        while self.take("union"):
            items.append(self.sum())
        return first if len(items) == 1 else ("union", tuple(items))

    def sum(self) -> Node:
        """Terms joined by plus, minus or plus-minus."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotMath("it is nested too deeply")
        node = self.term()
        while self.peek() in (Token("op", "+"), Token("op", "-"), Token("op", "+-")):
            op, right = self.next().text, self.term()
            node = ("pm", node, right) if op == "+-" else ("add", node, right if op == "+" else ("neg", right))
        self.depth -= 1
        return node

    def term(self) -> Node:
        """Factors joined by times, over, or nothing; a sign binds the whole term."""
        if self.take("-"):
            return ("neg", self.term_limited())
        if self.take("+"):
            return self.term_limited()
        if self.take("+-"):
            return ("pm", ("num", "0"), self.term_limited())
        node = self.factor()
        while True:
            if self.take("*"):
                node = ("mul", node, self.signed())
            elif self.take("/"):
                node = ("div", node, self.signed())
            elif self.starts_factor():
                right = self.factor()
                if node[0] == right[0] == "num":
                    raise NotMath("two numbers stand side by side")
                mixed = node[0] == "num" and right[0] == "div" and right[1][0] == right[2][0] == "num"
                node = ("add" if mixed else "mul", node, right)  # 1 \frac12 is a mixed number
            else:
                return node

    def term_limited(self) -> Node:
        """A term after a sign; signs in a row count as depth."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotMath("it is nested too deeply")
        node = self.term()
        self.depth -= 1
        return node

    def signed(self) -> Node:
        """A factor that may carry its own sign: ``3 * -2``."""
        if self.take("-"):
            return ("neg", self.factor())
        self.take("+")
        return self.factor()

    def factor(self) -> Node:
        """A power with what follows it: factorial, percent, degree."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotMath("it is nested too deeply")
        node = self.postfix(self.atom())
        if self.take("^"):
            if self.take("degree"):
                self.depth -= 1
                return node
            exponent = ("neg", self.factor()) if self.take("-") else self.factor()
            node = self.postfix(("pow", node, exponent))
        self.depth -= 1
        return node

    def postfix(self, node: Node) -> Node:
        """Marks behind an atom."""
        while True:
            if self.take("!"):
                node = ("fact", node)
            elif self.take("%"):
                node = ("percent", node)
            elif not self.take("degree"):
                return node

    def atom(self) -> Node:
        """A number, name, bracket, root, fraction ..."""
        token = self.next()
        if token.kind == "num":
            return ("num", str(Fraction(token.text if token.text[0] != "." else "0" + token.text)))
        if token.kind == "name":
            return self.named(token.text)
        if token.kind == "begin":
            return self.matrix(token.text)
        if token.kind != "op":
            raise NotMath(f"{token.text!r} is not expected there" if token.text else "it ends too early")
        if token.text in ("(", "["):
            return self.bracket(token.text)
        if token.text == "{":
            return self.closed("}", self.listed())
        if token.text == "\\{":
            inner = self.listed()
            return self.closed("\\}", ("set", inner[1] if inner[0] == "tuple" else (inner,)))
        if token.text == "|":
            return self.closed("|", ("call", "abs", (self.sum(),)))
        if token.text in ("lfloor", "lceil"):
            return self.closed("r" + token.text[1:], ("call", token.text[1:].replace("ceil", "ceil"), (self.sum(),)))
        if token.text == "frac":
            top = self.argument()
            return ("div", top, self.argument())
        if token.text == "binom":
            top = self.argument()
            return ("call", "binom", (top, self.argument()))
        raise NotMath(f"{token.text!r} is not expected there")

    def named(self, name: str) -> Node:
        """A function with its argument, a constant, an unknown function applied, or a symbol."""
        if name in FUNCTIONS:
            return self.function(_ALIASES.get(name, name))
        if name in CONSTANTS:
            return ("sym", _ALIASES.get(name, name))
        if self.take("_"):
            under = self.argument()
            return ("sym", f"{name}_{under[1]}" if under[0] in ("num", "sym") else f"{name}_?")
        if name in "fgh" and self.peek() == Token("op", "("):
            self.next()
            inner = self.listed()
            return self.closed(")", ("apply", name, inner[1] if inner[0] == "tuple" else (inner,)))
        return ("sym", name)

    def function(self, name: str) -> Node:
        """``sqrt[3]{x}``, ``log_2 8``, ``sin^2 x``, ``sin x``, ``max(1, 2)``."""
        if name == "sqrt" and self.take("["):
            index = self.closed("]", self.sum())
            return ("pow", self.argument(), ("div", ("num", "1"), index))
        base = self.argument() if name == "log" and self.take("_") else None
        power = self.argument() if self.take("^") else None
        if self.take("("):
            inner = self.closed(")", self.listed())
            arguments = inner[1] if inner[0] == "tuple" else (inner,)
        else:
            arguments = (self.argument() if self.peek() == Token("op", "{") else self.factor(),)
            while (
                name != "sqrt"
                and self.starts_factor()
                and self.peek().kind in ("num", "name")
                and self.peek().text not in FUNCTIONS
            ):
                arguments = (("mul", arguments[0], self.factor()),)  # sin 2x
        node: Node = ("call", name, (*arguments, base) if base else arguments)
        return ("pow", node, power) if power else node

    def argument(self) -> Node:
        """A braced group, or one digit or letter as TeX takes it: ``\\frac12``."""
        if self.take("{"):
            return self.closed("}", self.listed())
        token = self.peek()
        if token.kind == "num" and len(token.text) > 1 and token.text.isdigit():
            self.found[self.at] = Token("num", token.text[1:])
            return ("num", token.text[0])
        return self.atom()

    def bracket(self, left: str) -> Node:
        """``(a)``, ``(a, b)``, ``[a, b)``: a group, a tuple or an interval."""
        inner = self.listed()
        right = self.next()
        if right.kind != "op" or right.text not in (")", "]"):
            raise NotMath("a bracket is not closed")
        shape = left + right.text
        if inner[0] != "tuple":
            if shape in ("()", "[]"):
                return inner
            raise NotMath("its brackets do not match")
        if shape == "()" or (shape == "[]" and len(inner[1]) != 2):
            return ("tuple", inner[1])
        if len(inner[1]) != 2:
            raise NotMath("an interval has two ends")
        return ("interval", *inner[1], shape)

    def matrix(self, kind: str) -> Node:
        """Rows of ``pmatrix`` and its like."""
        rows: list[tuple[Node, ...]] = []
        row = [self.sum()]
        while True:
            token = self.next()
            if token == Token("op", "&"):
                row.append(self.sum())
            elif token == Token("op", "\\\\"):
                rows.append(tuple(row))
                row = [self.sum()] if self.peek().kind != "end" else []
            elif token.kind == "end" and token.text == kind:
                return ("matrix", tuple([*rows, tuple(row)] if row else rows))
            else:
                raise NotMath("a matrix is not closed")

    def starts_factor(self) -> bool:
        """Whether what comes next may be multiplied without a sign."""
        token = self.peek()
        return token.kind in ("num", "name") or (
            token.kind == "op" and token.text in ("(", "{", "frac", "binom", "lfloor", "lceil")
        )

    def closed(self, mark: str, node: Node) -> Node:
        """``node`` once its closing mark is read."""
        if not self.take(mark):
            raise NotMath("a bracket is not closed")
        return node

    def take(self, text: str) -> bool:
        """Steps over an operator if it is next."""
        if self.peek() == Token("op", text):
            self.at += 1
            return True
        return False

    def peek(self) -> Token:
        """The next token, an empty "end" after the last."""
        return self.found[self.at] if self.at < len(self.found) else _END

    def next(self) -> Token:
        """Takes the next token."""
        token = self.peek()
        self.at += 1
        return token

"""Mathematical text, plain or LaTeX, into tokens. Knows no meaning; refuses what it does not know."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_CHARS: Final = 2_000


class NotMath(ValueError):
    """The text is no mathematical expression that we read; the message says why."""


class Token(NamedTuple):
    """``Token("num", "12.5")``, ``Token("name", "sin")``, ``Token("op", "+")``, ``Token("word", "even")``."""

    kind: str
    text: str


_FUNCTIONS: Final = """
sqrt sin cos tan cot sec csc arcsin arccos arctan asin acos atan sinh cosh tanh ln log lg exp abs floor ceil min max gcd lcm
"""
FUNCTIONS: Final = frozenset(_FUNCTIONS.split())
CONSTANTS: Final = frozenset(["pi", "infty", "infinity", "inf", "oo"])
GREEK: Final = frozenset(
    ["alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "nu", "rho", "sigma", "tau", "phi", "omega", "varphi"]
)
_COMMANDS: Final = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=",
    "geqslant": ">=", "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "in": "in", "cup": "union", "pm": "+-", "colon": ":",
    "lfloor": "lfloor", "rfloor": "rfloor", "lceil": "lceil", "rceil": "rceil", "lvert": "|", "rvert": "|", "vert": "|",
    "circ": "degree", "setminus": "minus", "frac": "frac", "binom": "binom", "lor": "or", "vee": "or",
}  # fmt: skip
_SKIPPED: Final = frozenset(["left", "right", "big", "Big", "bigg", "displaystyle", "limits", "quad", "qquad", "bigl", "bigr"])
_UNICODE: Final = {
    "−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "≤": "<=", "≥": ">=", "≠": "!=", "∈": "in", "∪": "union",
    "±": "+-", "°": "degree", "π": "pi", "∞": "infty", "√": "sqrt", "²": "^2", "³": "^3",
}  # fmt: skip
_TOKEN = re.compile(
    r"(?P<space>(?:\s|\\[,;:! ]|~|&nbsp;)+)"
    r"|(?P<num>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"|\\(?P<text>text|mathrm|mathbf|textbf|mbox|operatorname|mathit)\s*\{(?P<inner>[^{}]{0,200})\}"
    r"|\\(?P<env>begin|end)\{(?P<matrix>[pbvBV]?matrix|array)\}(?:\{[lcr|]*\})?"
    r"|\\(?P<command>[A-Za-z]+)"
    r"|\\(?P<escaped>[%${}|\\])"
    r"|(?P<name>[A-Za-z]+)"
    r"|(?P<op>\*\*|<=|>=|!=|==|\+-|[-+*/^_=<>(){}\[\],;:!|%&$])"
    r"|(?P<other>.)",
    re.DOTALL,
)


def tokens(text: str) -> list[Token]:
    """``tokens(r"\\frac12 x")`` -> frac, 1, 2, x. A thousands comma is part of its number only in ``1,234``-like groups.

    Raises ``NotMath``.
    """
    if len(text) > MAX_CHARS:
        raise NotMath(f"it is longer than {MAX_CHARS:,} characters")
    for mark, plain in _UNICODE.items():
        text = text.replace(mark, f" {plain} " if plain.isalpha() else plain)
    found: list[Token] = []
    for match in _TOKEN.finditer(text.replace("{,}", "")):
        kind = match.lastgroup or ""
        if kind == "space":
            continue
        if match["other"]:
            raise NotMath(f"{match['other']!r} has no place in it")
        found += _read(match)
    return found


def _read(match: re.Match[str]) -> list[Token]:
    """The tokens of one match."""
    if match["num"]:
        return [Token("num", match["num"].replace(",", ""))]
    if match["text"]:
        inner = match["inner"].strip()
        return _named(inner) if re.fullmatch(r"[A-Za-z]|" + "|".join(sorted(FUNCTIONS)), inner) else [Token("word", inner)]
    if match["env"]:
        return [Token(match["env"], match["matrix"])]
    if match["command"]:
        return _command(match["command"])
    if match["escaped"]:
        escaped = match["escaped"]
        return [] if escaped == "$" else [Token("op", {"{": "\\{", "}": "\\}", "|": "|", "\\": "\\\\"}.get(escaped, escaped))]
    if match["name"]:
        return _named(match["name"])
    op = {"**": "^", "==": "="}.get(match["op"], match["op"])
    return [] if op == "$" else [Token("op", op)]


def _command(name: str) -> list[Token]:
    """A LaTeX command."""
    if name in _SKIPPED:
        return []
    name = {"dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom"}.get(name, name)
    if name in _COMMANDS:
        return [Token("op", _COMMANDS[name])]
    if name in FUNCTIONS or name in CONSTANTS or name in GREEK:
        return [Token("name", name)]
    raise NotMath(f"\\{name} is not known")


def _named(name: str) -> list[Token]:
    """Letters: a function or constant whole, ``or`` and ``in`` as operators, ``xy`` as x times y, long words as words."""
    low = name.lower()
    if name in FUNCTIONS or name in CONSTANTS or name in GREEK:
        return [Token("name", name)]
    if low in ("or", "in", "union"):
        return [Token("op", low)]
    if low == "and":
        return [Token("word", low)]
    if len(name) <= 2 or (len(name) == 3 and not re.search("[aeiou]", low)):
        return [Token("name", letter) for letter in name]
    for function in sorted(FUNCTIONS, key=len, reverse=True):
        if name.endswith(function) and len(name) <= len(function) + 2:  # xsin, 2ysqrt
            return [*(Token("name", letter) for letter in name[: -len(function)]), Token("name", function)]
    return [Token("word", name)]

"""Numbers as people write them -> exact rationals: integers, decimals, fractions, mixed numbers, percent, money, units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARS = 400
MAX_EXPONENT = 400

# Canonical unit -> its spellings. A conversion task asks for one unit; another one is wrong even where the length is right.
_UNITS = {
    "mm": "mm millimeter millimeters millimetre millimetres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "m": "m meter meters metre metres",
    "km": "km kilometer kilometers kilometre kilometres",
    "g": "g gram grams",
    "kg": "kg kilogram kilograms",
    "ml": "ml milliliter milliliters millilitre millilitres",
    "l": "l liter liters litre litres",
    "second": "s sec secs second seconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "d day days",
    "week": "week weeks",
    "cent": "cent cents",
    "dollar": "dollar dollars usd",
}
UNITS = {spelling: unit for unit, spellings in _UNITS.items() for spelling in spellings.split()}
# Words that would change the value or leave it open.
_OPEN = """
or and either maybe about approximately not nor to dozen hundred thousand million billion trillion k half quarter
plus minus times point pi e i x squared cubed
"""
_NOT_UNITS = frozenset(_OPEN.split())

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)"
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)\s?(?P<money>[$€£])?\s?(?P<inner>[-+]?)"
    rf"(?:(?P<whole>[0-9]+)\s(?P<n>[0-9]+)\s?/\s?(?P<d>[0-9]+)"
    rf"|(?P<num>{_DECIMAL})\s?/\s?(?P<den>{_DECIMAL})"
    rf"|(?P<dec>{_DECIMAL})(?:[eE](?P<exp>[-+]?[0-9]{{1,4}}))?)"
    r"\s?(?P<percent>%|percent\b)?\s?(?P<unit>[A-Za-z]+(?: [A-Za-z]+){0,2})?"
)
_NAMED = re.compile(r"^[A-Za-z]\w{0,15}\s{0,4}=\s{0,4}", re.ASCII)
_FRACTION = re.compile(r"\\[dt]?frac\{([-+0-9., ]{1,60})\}\{([0-9., ]{1,60})\}")
_TEXT = re.compile(r"\\(?:text|mathrm)\{([^{}]{0,60})\}")
_LATEX = {"\\%": "%", "\\$": "$", "\\,": " ", "\\!": "", "\\ ": " ", "{,}": ",", "\u2212": "-", "\u00a0": " ", "\u202f": " "}


class NotANumber(ValueError):
    """The text is not one number; the message says why."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as written. ``Quantity(value=Fraction(1, 2), unit="hour", percent=False)``; 50% has the value 1/2."""

    value: Fraction
    unit: str = ""  # canonical where known, else as written in lower case
    percent: bool = False


def parse_number(text: str) -> Quantity:
    """``parse_number("1,250.5 km")`` -> ``Quantity(Fraction(2501, 2), "km")``. Raises ``NotANumber``; evaluates nothing."""
    if len(text) > MAX_CHARS:
        raise NotANumber(f"it is longer than {MAX_CHARS} characters")
    for mark, plain in _LATEX.items():
        text = text.replace(mark, plain)
    text = _FRACTION.sub(lambda m: f" {m.group(1)}/{m.group(2)}", _TEXT.sub(r" \1", text)).strip()
    text = " ".join(_NAMED.sub("", text, count=1).split())
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise NotANumber("it is not one number")
    if match["sign"] and match["inner"]:
        raise NotANumber("it has two signs")
    unit = (match["unit"] or "").lower()
    if set(unit.split()) & _NOT_UNITS:
        raise NotANumber("it is a number with words that leave it open")
    if match["money"]:
        unit = {"$": "dollar", "€": "euro", "£": "pound"}[match["money"]]
    return Quantity(_value(match), UNITS.get(unit, unit), bool(match["percent"]))


def _value(match: re.Match[str]) -> Fraction:
    """The exact value, sign and percent included."""

    def plain(digits: str) -> Fraction:
        return Fraction(digits.replace(",", "")) if not digits.startswith(".") else Fraction("0" + digits)

    if match["whole"]:
        top, bottom = plain(match["n"]), plain(match["d"])
    elif match["num"]:
        top, bottom = plain(match["num"]), plain(match["den"])
    else:
        exponent = int(match["exp"] or 0)
        if abs(exponent) > MAX_EXPONENT:
            raise NotANumber("its exponent is out of range")
        top, bottom = plain(match["dec"]) * Fraction(10) ** exponent, Fraction(1)
    if bottom == 0:
        raise NotANumber("it divides by zero")
    value = top / bottom + (plain(match["whole"]) if match["whole"] else 0)
    if "-" in (match["sign"], match["inner"]):
        value = -value
    return value / 100 if match["percent"] else value


def same(gold: Quantity, got: Quantity) -> bool:
    """Exactly equal. A missing unit is no fault, a different one is; a percentage may be said with or without its sign."""
    if gold.unit and got.unit and gold.unit != got.unit:
        return False
    if got.value == gold.value:
        return True
    if gold.percent and not got.percent:
        return got.value == gold.value * 100
    # "What percent ...?" has a gold of 40, and 40% answers it; a gold of at most 1 may be a probability and stays strict.
    return got.percent and not gold.percent and gold.value > 1 and got.value * 100 == gold.value


def show(value: Fraction) -> str:
    """``show(Fraction(3, 2))`` -> "3/2"; whole numbers without a denominator."""
    return str(value)

"""Where the final answer of a text is: the last ``Answer:``, "The answer is" or ``\\boxed{}`` decides, whatever came before."""

from __future__ import annotations

import re

MAX_CHARS = 2_000  # a longer answer after its mark is malformed; the whole text may be longer

_MARK = re.compile(r"\banswer[*_` ]{0,8}:[*_]{0,4}|\bthe (?:final |correct )?answer is\b:?[*_]{0,4}", re.IGNORECASE)
_LAST = re.compile(r"\$[^$\n]{1,200}\$|\\\([^\n]{1,200}?\\\)|\\?\$?[-+]?\\?\$?[0-9][0-9,.]*(?:/[0-9]+)?\\?%?")
_WRAPPED = re.compile(r"^(\*{1,3}|_{1,3}|`{1,3}|\${1,2})(.*?)\1$", re.DOTALL)
_LATEX_TEXT = re.compile(r"^\\(?:text|mathrm|mathbf|textbf|operatorname)\{([^{}]*)\}$")
_LATEX_MATH = (("\\(", "\\)"), ("\\[", "\\]"))


class NoAnswer(ValueError):
    """The text holds no readable answer; the message says why, fit to be shown to the policy."""


def find_answer(text: str) -> str:
    """``find_answer("3+4=7. Answer: **7**.")`` -> "7". The line after the last mark; linear in the length of the text.

    Raises ``NoAnswer`` when there is no mark, nothing after it, or far too much after it.
    """
    boxed = text.rfind("\\boxed{")
    mark = None
    for mark in _MARK.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    if mark is None and boxed < 0:
        raise NoAnswer('There is no "Answer:" line.')
    if mark is None or boxed >= mark.end():
        found = _braced(text, boxed + len("\\boxed{"))
    else:
        found = text[mark.end() : mark.end() + MAX_CHARS + 1].lstrip(" \t").split("\n", 1)[0]
        if not found.strip(" \r\t") and len(text) - mark.end() <= MAX_CHARS:  # the answer may stand on the line below its mark
            found = text[mark.end() :].strip().split("\n", 1)[0]
    if len(found) > MAX_CHARS:
        raise NoAnswer(f"The answer is longer than {MAX_CHARS:,} characters.")
    found = unwrap(found)
    if not found:
        raise NoAnswer('Nothing follows "Answer:".')
    return found


def find_last(text: str) -> str:
    """The last formula or number of the last line, for texts that mark no answer: ``find_last("It is \\\\$18.")`` -> "$18"."""
    found = _LAST.findall(text.strip().rsplit("\n", 1)[-1][-MAX_CHARS:])
    if not found:
        raise NoAnswer("The last line holds no number.")
    return unwrap(found[-1].rstrip(".,"))


def unwrap(text: str) -> str:
    """Strips what is only dress: space, emphasis, math delimiters, ``\\text{}``, one full stop. ``"**73**."`` -> "73"."""
    before = None
    text = text.strip()
    while text != before:
        before = text
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1].rstrip()
        if match := _WRAPPED.match(text):
            text = match.group(2).strip()
        elif text.endswith("*"):  # the end of emphasis that began before the mark
            text = text.rstrip("* ")
        if match := _LATEX_TEXT.match(text):
            text = match.group(1).strip()
        for left, right in _LATEX_MATH:
            if text.startswith(left) and text.endswith(right) and len(text) >= 4:
                text = text[2:-2].strip()
    return text


def _braced(text: str, start: int) -> str:
    """The text up to the brace that closes the one before ``start``."""
    depth = 1
    for at in range(start, min(len(text), start + MAX_CHARS + 1)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start:at]
    raise NoAnswer("The braces of \\boxed{...} are not closed.")

"""Checks on a text that anyone can count: words, letters, case, order. Each is ``(text, words, value) -> bool``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

_WORD = re.compile(r"\w(?:.*\w)?", re.DOTALL)  # from its first letter to its last; linear, as ``\W+$`` is not

Check = Callable[[str, Sequence[str], Any], bool]


def words_of(text: str) -> list[str]:
    """Words without the marks around and between them: ``words_of("Red, blue-green!")`` -> ["Red", "blue", "green"]."""
    return [found.group() for piece in re.split(r"[\s,;/-]+", text) if (found := _WORD.search(piece))]


def _separated(text: str, words: Sequence[str], by: str) -> bool:
    """The words, joined by exactly this separator, are the text up to a closing mark."""
    return text.rstrip(".!?") == by.join(words)


CHECKS: Final[Mapping[str, Check]] = {
    "num_words": lambda text, words, value: len(words) == value,
    "num_lines": lambda text, words, value: len([line for line in text.split("\n") if line.strip()]) == value,
    "includes": lambda text, words, value: value.casefold() in [w.casefold() for w in words],
    "first_word": lambda text, words, value: bool(words) and words[0].casefold() == value.casefold(),
    "last_word": lambda text, words, value: bool(words) and words[-1].casefold() == value.casefold(),
    "nth_word": lambda text, words, value: len(words) >= value[0] and words[value[0] - 1].casefold() == value[1].casefold(),
    "uppercase": lambda text, words, value: text == text.upper() and text != text.lower(),
    "lowercase": lambda text, words, value: text == text.lower() and text != text.upper(),
    "separator": _separated,
    "no_letter": lambda text, words, value: value.casefold() not in text.casefold(),
    "letter_starts": lambda text, words, value: sum(w[0].casefold() == value[0] for w in words) == value[1],
    "ends_with": lambda text, words, value: text.endswith(value),
    "longest_word": lambda text, words, value: max(map(len, words), default=0) <= value,
    "alphabetical": lambda text, words, value: [w.casefold() for w in words] == sorted(w.casefold() for w in words),
    "all_different": lambda text, words, value: len({w.casefold() for w in words}) == len(words),
    "real_letters": lambda text, words, value: all(w.isalpha() for w in words),
}

"""Text to token ids and back, so that text inside a message can never become a control token."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from posttrain.errors import UsageError

# Control tokens of some models that belong to what an answer says: kept when tokens become text.
SPOKEN = frozenset({"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"})


class Vocabulary:
    """A tokenizer, with a mark that splits control tokens written by people.

    Template engines see ``<|im_start|>`` written by a user as text like any other, tokenizers take it for a control token.
    ``shield`` puts a mark inside each such string before the template runs; ``encode`` cuts the rendered text at the
    marks, so that no piece holds the whole string. The mark is random: no message can contain it.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        tokens = {i: t for i, t in tokenizer.added_tokens_decoder.items() if len(str(t)) > 1 and str(t).strip()}
        self.added: dict[str, int] = {str(t): i for i, t in tokens.items()}
        named = set(tokenizer.all_special_tokens)
        self.special = frozenset(str(t) for t in tokens.values() if t.special or str(t) in named)
        self._silent = {self.added[text] for text in self.special - SPOKEN}
        self._mark = f"Xq{secrets.token_hex(8)}qX"
        self._patterns: dict[frozenset[str], re.Pattern[str]] = {}

    def shield(self, value: Any, control: frozenset[str]) -> Any:
        """The same text (or strings inside lists and objects) with every string of ``control`` marked."""
        if isinstance(value, str):
            # Overlapping occurrences count, so each one is found at its own start and cut after its first character.
            return self._pattern(control).sub(rf"\1{self._mark}", value) if control else value
        if isinstance(value, Mapping):
            return {self.shield(k, control): self.shield(v, control) for k, v in value.items()}
        if isinstance(value, Sequence):
            return [self.shield(v, control) for v in value]
        return value

    def _pattern(self, control: frozenset[str]) -> re.Pattern[str]:
        if control not in self._patterns:
            self._patterns[control] = re.compile(f"(?s)(?={_tree_pattern(control)})(.)")
        return self._patterns[control]

    def unshield(self, text: str) -> str:
        """Without the marks."""
        return text.replace(self._mark, "")

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text: control tokens of the template are control tokens, marked ones are text."""
        pieces = text.split(self._mark)
        return [i for piece in pieces if piece for i in self.tokenizer.encode(piece, add_special_tokens=False)]

    def encode_after(self, before: str, text: str) -> list[int]:
        """Ids of ``text`` as they follow ``before``; no token straddles the seam, as none does in sampling.

        Raises UsageError where the two read differently apart and together.
        """
        head, whole = self.encode(before), self.encode(before + text)
        if whole[: len(head)] == head:
            return whole[len(head) :]
        alone = self.encode(text)
        if self.decode(head + alone, control=True) != self.decode(whole, control=True):
            raise UsageError(
                f"This tokenizer writes {text[:40]!r} differently after {before[-20:]!r} than on its own, "
                "so tokens and text would not agree; use a tokenizer without prefix spaces."
            )
        return alone

    def decode(self, ids: Iterable[int], *, control: bool = False) -> str:
        """Text of tokens; without control tokens unless asked for. Ids beyond the vocabulary are nothing."""
        kept = list(ids) if control else [i for i in ids if i not in self._silent]
        text: str = self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def controls_in(self, text: str) -> frozenset[str]:
        """Added tokens that a text holds."""
        return frozenset(s for s in self.added if s in text)

    def first_control(self, text: str) -> str:
        """The added token that a text begins with, after white space; "" if it begins with anything else."""
        text = text.lstrip()
        return max((s for s in self.added if text.startswith(s)), key=len, default="")


def _tree_pattern(strings: Iterable[str]) -> str:
    """A regular expression for "begins with one of these", with shared beginnings shared.

    Some vocabularies hold thousands of control tokens; trying them one by one at each character takes a minute a megabyte.
    """
    tree: dict[str, Any] = {}
    shortest = ""
    for string in sorted(strings):  # what begins with another one follows it, and need not be read to its end
        if shortest and string.startswith(shortest):
            continue
        shortest, node = string, tree
        for character in string:
            node = node.setdefault(character, {})
    return _branches(tree)


def _branches(node: Mapping[str, Any]) -> str:
    """The expression of one node; a leaf is the end of a string."""
    parts = [re.escape(character) + _branches(below) for character, below in node.items()]
    return "" if not parts else parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"

"""The orders of the prompt, carried out from its text."""

from __future__ import annotations

import re

import pytest

from posttrain.envs.writing.transforms import WordTransform


def carry_out(prompt: str) -> str:
    """What the orders in the prompt make of its words."""
    listed = max(re.findall(r"[a-z]+(?:, [a-z]+){2,}", prompt), key=len)
    words = listed.split(", ")
    for order in re.split(r"\. ?", prompt.replace(listed, "")):
        low = order.lower()
        if "reverse the order" in low:
            words = words[::-1]
        elif "sort them" in low:
            words = sorted(words)
        elif "then move the first" in low or low.strip().startswith("move the first") or "this: move the first" in low:
            words = [*words[1:], words[0]]
        elif "swap the first" in low:
            words = [words[-1], *words[1:-1], words[0]]
        elif "remove the first" in low:
            words = words[1:]
        elif "remove the last" in low:
            words = words[:-1]
        elif match := re.search(r'start with "(.)"', low):
            words = [w for w in words if w[0] != match[1]]
        elif match := re.search(r"more than (\d) letters", low):
            words = [w for w in words if len(w) > int(match[1])]
        elif "first letters" in low:
            return "".join(w[0] for w in words).upper()
        elif "reverse order, separated" in low:
            return " ".join(words[::-1])
        elif match := re.search(r"joined by .* \((.)\)", low):
            return match[1].join(words).upper() if "capital" in low else match[1].join(words)
    raise AssertionError(prompt)


@pytest.mark.parametrize("level", range(10))
def test_the_orders_give_the_answer(level: int) -> None:
    for seed in range(60):
        task = WordTransform().generate(seed, level)
        assert carry_out(task.prompt[0].content) == task.answer

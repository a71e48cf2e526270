"""Collect like terms and multiply out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, text_decoys, worked
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.math import Math

WORDINGS = (
    "Simplify {expression}. End with: Answer: <expression>",
    "Collect like terms: {expression}\nEnd with: Answer: <expression>",
    "Write {expression} as short as possible, without brackets. End with: Answer: <expression>",
    "What is {expression} in simplest form? End with: Answer: <expression>",
)
# Terms, brackets, letters.
SIZES = ((3, 0, 1), (4, 0, 1), (4, 0, 2), (3, 1, 1), (5, 1, 2), (5, 2, 2), (6, 3, 2), (8, 4, 3), (10, 5, 3), (12, 7, 3))


@dataclass(frozen=True)
class LikeTerms(Family):
    """``3x + 5 + 2x`` at level 0; twelve terms and seven brackets in three letters at level 9. Judged by meaning and form."""

    @property
    def verifier(self) -> Verifier:
        return Math(form="expanded")

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num, brackets, num_letters = SIZES[level]
        letters = rng.sample("abcmnpxyz", num_letters)
        pieces, total, steps = [], Counter[str](), list[str]()
        kinds = [*letters, letters[0], *(rng.choice([*letters, ""]) for _ in range(num - num_letters - 2)), ""]
        rng.shuffle(kinds)
        for letter in kinds:
            c = rng.randint(2, 9 if level else 5) if letter else rng.randint(1, 20)
            c = -c if level > 0 and rng.random() < 0.3 else c
            total[letter] += c
            pieces.append({letter: c})
        for _ in range(brackets):
            factor, letter = rng.randint(2, 6), rng.choice(letters)
            inner = {letter: rng.randint(1, 6), "": rng.choice((-1, 1)) * rng.randint(1, 9)}
            steps.append(f"{factor}({shown(inner)}) = {shown({k: factor * c for k, c in inner.items()})}")
            pieces.append({"(": factor, **inner})
            total.update({k: factor * c for k, c in inner.items()})
        rng.shuffle(pieces)
        expression = joined([piece(p) for p in pieces])
        for letter in [*letters, ""]:
            found = [p[letter] * p.get("(", 1) for p in pieces if letter in p]
            if len(found) > 1:
                steps.append(f"{joined([shown({letter: c}) for c in found])} = {shown({letter: sum(found)})}")
        order = [*sorted(letters), ""]
        answer = shown({k: total[k] for k in order})
        template, wording = pick(rng, WORDINGS)
        wrong = [shown({k: total[k] + (k == w) for k in order}) for w in (letters[0], "")] + [expression]
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(expression=expression),
            answer=answer,
            oracle=worked(steps, answer),
            size=float(num + 2 * brackets - 1),
            private={"wrong": wrong},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return text_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Additions and products to work out."""
        return float(task.metadata["size"])


def shown(terms: dict[str, int]) -> str:
    """``shown({"x": 3, "": -2})`` -> "3x - 2"."""
    parts = [f"{'' if abs(c) == 1 and k else str(abs(c))}{k}" for k, c in terms.items() if c]
    signs = [c < 0 for c in terms.values() if c]
    return joined([("-" if negative else "") + part for negative, part in zip(signs, parts, strict=True)]) or "0"


def piece(terms: dict[str, int]) -> str:
    """A term, or a bracket with its factor."""
    inner = shown({k: c for k, c in terms.items() if k != "("})
    return f"{terms['(']}({inner})" if "(" in terms else inner


def joined(parts: list[str]) -> str:
    """``joined(["3x", "-2"])`` -> "3x - 2"."""
    text = " ".join(("- " + p[1:] if p.startswith("-") else "+ " + p) for p in parts)
    return text.removeprefix("+ ").replace("- ", "-", 1) if text.startswith("- ") else text.removeprefix("+ ")

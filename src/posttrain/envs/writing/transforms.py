"""Exact work on lists of words: join, order, filter, change."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, text_decoys, worked
from posttrain.envs._machinery.words import WORDS
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.exact import Exact

WORDINGS = (
    "Words: {words}.\n{orders} End with: Answer: <result>",
    "Take the words {words}. {orders} End with: Answer: <result>",
    "Here is a list: {words}.\nDo this: {orders} End with: Answer: <result>",
    "{orders} The words are: {words}. End with: Answer: <result>",
)
NUM_WORDS = (3, 4, 5, 6, 8, 10, 13, 16, 20, 26)
NUM_ORDERS = (1, 1, 2, 2, 3, 4, 5, 6, 7, 8)

Step = tuple[str, Callable[[list[str]], list[str]]]


@dataclass(frozen=True)
class WordTransform(Family):
    """Reverse, sort, filter, capitalise and join words: three words to join, up to eight orders on 26."""

    @property
    def verifier(self) -> Verifier:
        return Exact(case_sensitive=True)

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        words = rng.sample(WORDS, NUM_WORDS[level])
        orders, steps, now = list[str](), list[str](), list(words)
        for _ in range(NUM_ORDERS[level] - 1):
            order, change = orders_for(rng, now)
            now = change(now)
            orders.append(order)
            steps.append(", ".join(now))
        join, answer = joined(rng, now, simple=level == 0)
        orders.append(join)
        template, wording = pick(rng, WORDINGS)
        text = " Then ".join(o if i == 0 else o[0].lower() + o[1:] for i, o in enumerate(orders))
        prompt = wording.format(words=", ".join(words), orders=text)
        wrong = [answer.lower() if answer != answer.lower() else answer.upper(), answer[::-1], answer[:-1], ", ".join(words)]
        private = {"wrong": [w for w in wrong if w != answer]}
        size = float(NUM_WORDS[level] * NUM_ORDERS[level])
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=prompt,
            answer=answer,
            oracle=worked(steps, answer),
            size=size,
            private=private,
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return text_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Words times orders."""
        return float(task.metadata["size"])


def orders_for(rng: random.Random, words: list[str]) -> Step:
    """An order that keeps at least two words, and what it does."""
    letter = rng.choice(words)[0]
    length = rng.randint(3, 6)
    swaps: list[Step] = [
        ("Reverse the order of the words.", lambda ws: ws[::-1]),
        ("Sort them alphabetically.", sorted),
        ("Move the first word to the end.", lambda ws: [*ws[1:], ws[0]]),
        ("Swap the first and the last word.", lambda ws: [ws[-1], *ws[1:-1], ws[0]]),
    ]
    drops: list[Step] = [
        ("Remove the first word.", lambda ws: ws[1:]),
        ("Remove the last word.", lambda ws: ws[:-1]),
        (f'Remove the words that start with "{letter}".', lambda ws: [w for w in ws if w[0] != letter]),
        (f"Keep only the words with more than {length} letters.", lambda ws: [w for w in ws if len(w) > length]),
    ]
    fits = [*swaps, *(d for d in drops if len(d[1](words)) >= 2)]
    moving = [s for s in fits if s[1](words) != words]  # an order that changes nothing teaches nothing
    return rng.choice(moving or fits)


def joined(rng: random.Random, words: list[str], *, simple: bool) -> tuple[str, str]:
    """(the last order, the result)."""
    mark, name = rng.choice((("-", "a dash"), ("+", "a plus sign"), ("/", "a slash"), ("_", "an underscore")))
    ways = [
        (f"Write the words in capital letters, joined by {name} ({mark}).", mark.join(w.upper() for w in words)),
        (f"Write the words joined by {name} ({mark}).", mark.join(words)),
        ("Write the first letters of the words in capitals, without spaces.", "".join(w[0].upper() for w in words)),
    ]
    return ways[1] if simple else rng.choice(ways[:3])

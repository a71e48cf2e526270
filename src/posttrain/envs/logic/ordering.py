"""Put people in order from comparisons."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, text_decoys, worked
from posttrain.envs._machinery.words import NAMES
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.exact import Exact

# (more, less, most, least)
WORDINGS = (
    ("taller", "shorter", "tallest", "shortest"),
    ("older", "younger", "oldest", "youngest"),
    ("faster", "slower", "fastest", "slowest"),
    ("richer", "poorer", "richest", "poorest"),
)
PEOPLE = (3, 3, 4, 4, 5, 6, 8, 10, 13, 16)
RANKS = ("", "second ", "third ", "fourth ", "fifth ")


@dataclass(frozen=True)
class OrderPeople(Family):
    """Who is the tallest, or the k-th tallest, of 3 to 16 people, from comparisons of neighbours; shuffled from level 2 on."""

    @property
    def verifier(self) -> Verifier:
        return Exact()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num = PEOPLE[level]
        order = rng.sample(NAMES, num)  # from most to least
        template, (more, less, most, least) = pick(rng, WORDINGS)
        facts = []
        for high, low in itertools.pairwise(order):
            facts.append(f"{high} is {more} than {low}." if level == 0 or rng.random() < 0.5 else f"{low} is {less} than {high}.")
        if level >= 2:
            rng.shuffle(facts)
        depth = 1 if level < 3 else min(5, 1 + level // 2)
        k, top = rng.randrange(depth), rng.random() < 0.5
        answer = order[k] if top else order[-1 - k]
        question = f"Who is the {RANKS[k]}{most if top else least}? End with: Answer: <name>"
        prompt = " ".join([*facts, question])
        private = {"wrong": [n for n in order if n != answer][:3] if num > 3 else [n for n in order if n != answer]}
        steps = [", ".join(order if top else order[::-1])] if level >= 2 else []
        size = float(num * num)
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
        """People squared: every fact may have to be read for every place."""
        return float(task.metadata["size"])

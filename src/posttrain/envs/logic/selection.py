"""Pick one of several items by its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, text_decoys, worked
from posttrain.envs._machinery.words import COLOURS, NAMES
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.exact import Exact

WORDINGS = (
    "{things}.\nWho has the {rank} number of points{among}? End with: Answer: <name>",
    "Points: {things}.\nGive the name with the {rank} number of points{among}. End with: Answer: <name>",
    "Here are some players and their points. {things}.\nWhich player has the {rank} number{among}? End with: Answer: <name>",
    "Look at these scores: {things}.\nFind the {rank} score{among}. End with: Answer: <name>",
)
# Items, largest number, whether colours filter, how deep the rank may be.
SIZES = (
    (3, 60, False, 1),
    (4, 99, False, 1),
    (5, 99, False, 1),
    (6, 99, False, 2),
    (8, 200, False, 2),
    (10, 200, True, 2),
    (13, 500, True, 3),
    (16, 999, True, 3),
    (20, 999, True, 4),
    (26, 999, True, 5),
)
RANKS = ("", "second ", "third ", "fourth ", "fifth ")


@dataclass(frozen=True)
class PickExtreme(Family):
    """The largest or smallest of labelled numbers; later the k-th of those with one colour (3 to 26 items)."""

    @property
    def verifier(self) -> Verifier:
        return Exact()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num, most, filtered, depth = SIZES[level]
        names = rng.sample(NAMES, num)
        points = dict(zip(names, rng.sample(range(1, most + 1), num), strict=True))
        team = dict.fromkeys(names, "")
        among, members = "", names
        if filtered:
            colour = rng.choice(COLOURS)
            chosen = rng.sample(names, max(depth, num // 2))
            team = {n: colour if n in chosen else rng.choice([c for c in COLOURS if c != colour]) for n in names}
            among, members = f" in the {colour} team", [n for n in names if n in chosen]
        k, largest = rng.randrange(depth), rng.random() < 0.5
        ordered = sorted(members, key=lambda n: points[n], reverse=largest)
        answer = ordered[k]
        steps = [", ".join(f"{n} {points[n]}" for n in ordered[: k + 1])]
        template, wording = pick(rng, WORDINGS)
        things = ", ".join(f"{n} {points[n]}" + (f" ({team[n]})" if filtered else "") for n in names)
        rank = RANKS[k] + ("largest" if largest else "smallest")
        prompt = wording.format(things=things, rank=rank, among=among)
        private = {"wrong": [n for n in (*ordered, *names) if n != answer][:3]}
        size = float(num * (1 + filtered) * depth)
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
        """Items, times two where a team is to be filtered, times the deepest rank."""
        return float(task.metadata["size"])

"""Sort items by a key."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, text_decoys, worked
from posttrain.envs._machinery.words import NAMES
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.exact import Exact

NUMBERS = (
    "Sort these numbers from {first} to {last}: {things}. End with: Answer: <numbers separated by commas>",
    "Put the numbers {things} in order, {first} first. End with: Answer: <numbers separated by commas>",
    "Order the list {things} so that it runs from {first} to {last}. End with: Answer: <numbers separated by commas>",
    "Numbers: {things}\nArrange them with the {first} first and the {last} last. End with: Answer: <numbers separated by commas>",
)
PEOPLE = (
    "{things}.\nList the names by {rule}. End with: Answer: <names separated by commas>",
    "Sort these people by {rule}: {things}. End with: Answer: <names separated by commas>",
    "Points: {things}.\nGive all the names in order, sorted by {rule}. End with: Answer: <names separated by commas>",
    "Put the players in order by {rule}. {things}.\nEnd with: Answer: <names separated by commas>",
)
NUM_NUMBERS = (3, 4, 5, 6, 8, 10, 12, 15, 18, 24)
NUM_PEOPLE = (3, 3, 4, 5, 6, 8, 10, 12, 14, 18)


@dataclass(frozen=True)
class SortNumbers(Family):
    """3 to 24 different numbers, up or down; the right numbers in a wrong order earn at most 0.3."""

    @property
    def verifier(self) -> Verifier:
        return Exact(partial=0.3)

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        numbers = rng.sample(range(1, 30 if level == 0 else 100 if level < 3 else 1000), NUM_NUMBERS[level])
        up = rng.random() < 0.5
        first, last = ("smallest", "largest") if up else ("largest", "smallest")
        answer = [str(n) for n in sorted(numbers, reverse=not up)]
        template, wording = pick(rng, NUMBERS)
        prompt = wording.format(first=first, last=last, things=", ".join(map(str, numbers)))
        wrong = [", ".join(w) for w in near_orders(answer, [str(n) for n in numbers])]
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=prompt,
            answer=answer,
            oracle=worked(hundreds(answer) if level >= 4 else [(" < " if up else " > ").join(answer)], ", ".join(answer)),
            size=float(len(numbers)),
            private={"wrong": wrong},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return text_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Numbers."""
        return float(task.metadata["size"])


@dataclass(frozen=True)
class SortPeople(Family):
    """Names by their points; from level 4 ties are broken by a second rule (3 to 18 people)."""

    @property
    def verifier(self) -> Verifier:
        return Exact(partial=0.3)

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num = NUM_PEOPLE[level]
        names = rng.sample(NAMES, num)
        ties = level >= 4
        pool = [rng.randint(1, 99) for _ in range(num // 2)] * 2 if ties else []
        values = rng.sample(pool + rng.sample(range(100, 200), num - len(pool)), num) if ties else rng.sample(range(1, 60), num)
        points = dict(zip(names, values, strict=True))
        up, forward = rng.random() < 0.5, rng.random() < 0.5
        ordered = sorted(sorted(names, reverse=not forward), key=lambda n: points[n], reverse=not up)
        rule = f"points, {'lowest' if up else 'highest'} first"
        if ties:
            rule += f"; equal points in {'alphabetical' if forward else 'reverse alphabetical'} order"
        template, wording = pick(rng, PEOPLE)
        prompt = wording.format(rule=rule, things=", ".join(f"{n} {points[n]}" for n in names))
        steps = [", ".join(f"{n} {points[n]}" for n in ordered)]
        private = {"wrong": [", ".join(w) for w in near_orders(ordered, names)]}
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=prompt,
            answer=ordered,
            oracle=worked(steps, ", ".join(ordered)),
            size=float(num * (1 + ties)),
            private=private,
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return text_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """People, twice over where ties need the second rule."""
        return float(task.metadata["size"])


def near_orders(answer: list[str], given: list[str]) -> list[list[str]]:
    """Orders that are nearly right: reversed, one swap, one left out, one twice, and as given."""
    swapped = [*answer[:-2], answer[-1], answer[-2]]
    wrong = [answer[::-1], swapped, answer[:-1], [*answer, answer[-1]], given]
    return [w for w in wrong if w != answer]


def hundreds(ordered: list[str]) -> list[str]:
    """A line for each hundred: ``["12, 95", "310"]``; how a long list is sorted with little to keep in mind."""
    blocks: dict[int, list[str]] = {}
    for number in ordered:
        blocks.setdefault(int(number) // 100, []).append(number)
    return [", ".join(block) for block in blocks.values()]

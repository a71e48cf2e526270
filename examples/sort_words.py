"""An environment of your own in one file: posttrain run examples/own_environment.toml

The class is a frozen dataclass: its fields are its options, its docstring is its help. `posttrain check envs
examples/sort_words.py` runs the same gate on it that the built-in families pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.envs._base import Family
from posttrain.types import Limits, Message, Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.exact import Exact

WORDS = (
    "apple bridge candle desert engine forest garden hammer island jungle kettle ladder magnet needle orange pencil quartz "
    "ribbon saddle tunnel anchor basket copper dragon flower goblet helmet jacket lantern mirror napkin onion pepper rocket "
    "silver ticket umbrella velvet window yogurt zipper acorn beetle cactus donkey feather glacier harbor"
).split()
WORDINGS = (
    "Sort these words from A to Z: {words}. End with: Answer: <words, separated by spaces>",
    "Put in alphabetical order: {words}. Finish with a line like this: Answer: <words, separated by spaces>",
    "Words: {words}. Which order does a dictionary have? Last line: Answer: <words, separated by spaces>",
    "Here are some words: {words}. Write them in alphabetical order as: Answer: <words, separated by spaces>",
)


@dataclass(frozen=True)
class SortWords(Family):
    """Words into alphabetical order: two at level 0, twenty at level 9."""

    @property
    def verifier(self) -> Verifier:
        return Exact()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        words = rng.sample(WORDS, 2 + 2 * level)
        template = rng.randrange(len(WORDINGS))
        return Task(
            id=self.task_id(seed, level),
            environment=self.name,
            seed=seed,
            level=level,
            template=str(template),
            prompt=(Message(role="user", content=WORDINGS[template].format(words=", ".join(words))),),
            limits=Limits(max_tokens=32 + 24 * level),
            answer=" ".join(sorted(words)),
            metadata={"size": len(words)},
        )

    def oracle(self, task: Task) -> Response:
        return Response.of(f"Answer: {task.answer}")

    def decoys(self, task: Task) -> list[Response]:
        words = task.answer.split()
        return [
            Response.of(f"Answer: {' '.join(reversed(words))}", "from Z to A"),
            Response.of(f"Answer: {' '.join(words[:-1])}", "a word is missing"),
            Response.of(f"Answer: {' '.join([*words, words[-1]])}", "a word too many"),
            Response.of("", "empty"),
        ]

    def size(self, task: Task) -> float:
        return float(task.metadata["size"])

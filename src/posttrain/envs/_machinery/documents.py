"""Short numbered sentences that state facts about people; some lead to others."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from posttrain.envs._machinery.words import ANIMALS, CITIES, COLOURS, FOODS, HOBBIES, JOBS, NAMES

# relation: (values, sentence, question about a person; {who} may itself be a phrase)
RELATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "city": (CITIES, ("{name} lives in {value}.", "The home of {name} is in {value}."), "In which city does {who} live?"),
    "job": (JOBS, ("{name} is a {value}.", "{name} works as a {value}."), "What is the job of {who}?"),
    "pet": (ANIMALS, ("{name} has a {value}.", "The pet of {name} is a {value}."), "What pet does {who} have?"),
    "food": (FOODS, ("{name} eats {value}.", "For lunch {name} has {value}."), "What does {who} eat?"),
    "car": (COLOURS, ("The car of {name} is {value}.", "{name} drives a {value} car."), "What color is the car of {who}?"),
    "hobby": (HOBBIES, ("{name} likes {value}.", "On Sundays {name} enjoys {value}."), "What hobby does {who} like?"),
}


@dataclass(frozen=True)
class Document:
    """Numbered sentences, and where each fact stands: ``where[("Mia", "city")]`` is the number of its sentence, from 1."""

    sentences: tuple[str, ...]
    where: dict[tuple[str, str], int]
    values: dict[tuple[str, str], str]

    @property
    def text(self) -> str:
        return " ".join(f"[{i}] {s}" for i, s in enumerate(self.sentences, 1))


def write(rng: random.Random, facts: dict[tuple[str, str], str]) -> Document:
    """The facts in random order; relation "boss" has a person as its value."""
    order = list(facts)
    rng.shuffle(order)
    sentences = [_say(rng, *key, facts[key]) for key in order]
    return Document(tuple(sentences), {key: i for i, key in enumerate(order, 1)}, dict(facts))


def draw_facts(rng: random.Random, people: list[str], num: int) -> dict[tuple[str, str], str]:
    """``num`` different (person, relation) pairs; two people never share a value of one relation while there are enough."""
    pairs = rng.sample([(p, r) for p in people for r in RELATIONS], num)
    facts: dict[tuple[str, str], str] = {}
    for person, relation in pairs:
        used = {v for (_, r), v in facts.items() if r == relation}
        pool = [v for v in RELATIONS[relation][0] if v not in used]
        facts[person, relation] = rng.choice(pool or RELATIONS[relation][0])
    return facts


def boss_chain(people: list[str]) -> dict[tuple[str, str], str]:
    """Each person's boss is the next one: ["Mia", "Tom"] -> Mia's boss is Tom."""
    return {(a, "boss"): b for a, b in pairwise(people)}


def draw_people(rng: random.Random, num: int) -> list[str]:
    """Different first names."""
    return rng.sample(NAMES, num)


def _say(rng: random.Random, name: str, relation: str, value: str) -> str:
    if relation == "boss":
        return rng.choice(("The boss of {name} is {value}.", "{name} works for {value}.")).format(name=name, value=value)
    text = rng.choice(RELATIONS[relation][1]).format(name=name, value=value)
    return text.replace(f" a {value}", f" an {value}") if value[0] in "aeiou" else text

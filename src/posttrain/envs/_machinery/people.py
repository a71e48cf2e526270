"""Facts about people: a key, its JSON type, how to draw it, how to say it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from posttrain.envs._machinery.words import ANIMALS, CITIES, COLOURS, FOODS, HOBBIES, JOBS, MONTHS


@dataclass(frozen=True)
class Fact:
    """One thing to know about a person. ``says(value)`` completes a sentence that starts with a name."""

    key: str
    schema: Mapping[str, Any]
    kind: str  # the type as the prompt names it
    draw: Callable[[random.Random], Any]
    says: Callable[[Any], str]


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _date(value: str) -> str:
    year, month, day = value.split("-")
    return f"joined on {int(day)} {MONTHS[int(month) - 1]} {year}"


def _series(items: list[str]) -> str:
    return ", ".join(items[:-1]) + f" and {items[-1]}" if len(items) > 1 else items[0]


TEXT = {"type": "string"}
DATE = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "format": "date"}
AGE = Fact("age", {"type": "integer"}, "integer", lambda r: r.randint(18, 89), lambda v: f"is {v} years old")
PLAIN: tuple[Fact, ...] = (
    Fact("city", TEXT, "string", lambda r: r.choice(CITIES), lambda v: f"lives in {v}"),
    Fact("job", TEXT, "string", lambda r: r.choice(JOBS), lambda v: f"works as {_article(v)}"),
    Fact("pet", TEXT, "string", lambda r: r.choice(ANIMALS), lambda v: f"has {_article(v)}"),
    Fact("food", TEXT, "string", lambda r: r.choice(FOODS), lambda v: f"eats {v}"),
    Fact("color", TEXT, "string", lambda r: r.choice(COLOURS), lambda v: f"likes {v}"),
    Fact("room", {"type": "integer"}, "integer", lambda r: r.randint(100, 999), lambda v: f"sleeps in room {v}"),
    Fact("height", {"type": "integer"}, "integer", lambda r: r.randint(150, 199), lambda v: f"is {v} cm tall"),
)
HARDER: tuple[Fact, ...] = (
    Fact(
        "joined",
        DATE,
        "string YYYY-MM-DD",
        lambda r: f"{r.randint(1990, 2024)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}",
        _date,
    ),
    Fact(
        "hobbies",
        {"type": "array", "items": TEXT},
        "array of strings",
        lambda r: r.sample(HOBBIES, r.randint(2, 3)),
        lambda v: f"enjoys {_series(v)}",
    ),
    Fact("member", {"type": "boolean"}, "boolean", lambda r: r.random() < 0.5, lambda v: f"is {'' if v else 'not '}a member"),
    Fact(
        "score",
        {"type": "number"},
        "number",
        lambda r: r.randint(10, 99) / 10,
        lambda v: f"scored {v}",
    ),
)


def object_schema(facts: tuple[Fact, ...]) -> dict[str, Any]:
    """The JSON Schema of a person with a name and these facts, nothing else."""
    properties = {"name": TEXT} | {f.key: dict(f.schema) for f in facts}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

"""Relational themes of two tables each, and the databases drawn for them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posttrain.envs._machinery.words import ANIMALS, CITIES, COLOURS, FOODS, GOODS, JOBS, NAMES

Columns = Mapping[str, tuple[str, ...] | tuple[int, int]]  # column -> its texts, or (lowest, highest)


@dataclass(frozen=True)
class Theme:
    """A main table whose column ``link`` holds keys of a second one. ``key`` columns are unique, ``words`` says one row."""

    table: str
    key: str
    keys: tuple[str, ...]
    columns: Columns  # of the main table, without key and link
    link: str
    other: str  # the second table; its key column is "name"
    others: tuple[str, ...]
    other_columns: Columns

    @property
    def schema(self) -> str:
        """CREATE TABLE statements."""
        main = [f"{self.key} TEXT", f"{self.link} TEXT", *_declared(self.columns)]
        return (
            f"CREATE TABLE {self.table} ({', '.join(main)});\n"
            f"CREATE TABLE {self.other} (name TEXT, {', '.join(_declared(self.other_columns))});"
        )

    def signature(self, *, both: bool) -> str:
        """How a prompt names the tables: ``pets(name, owner, kind, age)``."""
        main = f"{self.table}({', '.join((self.key, self.link, *self.columns))})"
        return f"{main}, {self.other}({', '.join(('name', *self.other_columns))})" if both else main

    def texts(self) -> list[str]:
        """Text columns of the main table, with repeating values."""
        return [self.link, *(c for c, v in self.columns.items() if isinstance(v[0], str))]

    def numbers(self) -> list[str]:
        return [c for c, v in self.columns.items() if isinstance(v[0], int)]


def draw_instance(rng: random.Random, theme: Theme, near: Mapping[str, Any], num: int) -> dict[str, list[list[Any]]]:
    """Rows of both tables. ``near`` holds constants by column: numbers fall on and beside them, texts often equal them."""

    def cell(column: str, values: tuple[Any, ...]) -> Any:
        wanted = near.get(column)
        if isinstance(values[0], int):
            if isinstance(wanted, int) and rng.random() < 0.5:
                return wanted + rng.choice((-1, 0, 1))
            return rng.randint(values[0], values[1])
        few = values[: max(3, min(6, num // 5))]
        return wanted if isinstance(wanted, str) and rng.random() < 0.4 else rng.choice(few)

    others = rng.sample(theme.others, min(max(3, num // 4), 10))
    link = near.get(theme.link)
    if isinstance(link, str) and link not in others:
        others[0] = link
    keys = (
        [*theme.keys, *(f"{key} {suffix}" for suffix in ("II", "III") for key in theme.keys)]
        if num > len(theme.keys)
        else theme.keys
    )
    main = [
        [key, cell(theme.link, tuple(others)), *(cell(c, v) for c, v in theme.columns.items())] for key in rng.sample(keys, num)
    ]
    return {
        theme.table: main,
        theme.other: [[name, *(cell(c, v) for c, v in theme.other_columns.items())] for name in others],
    }


def _declared(columns: Columns) -> list[str]:
    return [f"{c} {'INTEGER' if isinstance(v[0], int) else 'TEXT'}" for c, v in columns.items()]


THEMES = (
    Theme(
        "staff", "name", NAMES, {"job": JOBS, "age": (18, 65), "pay": (20, 99)}, "team",
        "teams", ("Alpha", "Beta", "Gamma", "Delta", "Omega", "Sigma", "Kappa", "Theta", "Lambda", "Zeta"),
        {"city": CITIES, "budget": (100, 900)},
    ),
    Theme(
        "pets", "name", ("Rex", "Luna", "Bella", "Rocky", "Coco", "Milo", "Daisy", "Teddy", "Lucy", "Toby", "Ruby", "Jack",
        "Molly", "Oreo", "Pepper", "Rosie", "Sunny", "Shadow", "Ginger", "Buddy", "Lola", "Oscar", "Sam", "Bear", "Duke", "Nala"),
        {"kind": ANIMALS, "age": (1, 20), "weight": (1, 60)}, "owner",
        "owners", NAMES, {"city": CITIES, "income": (20, 99)},
    ),
    Theme(
        "goods", "item", GOODS, {"color": COLOURS, "price": (1, 99), "stock": (0, 80)}, "shop",
        "shops", CITIES, {"street": ("Main", "High", "Park", "Lake", "Hill", "Mill"), "size": (10, 90)},
    ),
    Theme(
        "meals", "dish", tuple(f"{a} {b}" for a in ("red", "hot", "big", "old", "sweet", "fresh") for b in FOODS),
        {"day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"), "price": (2, 40), "calories": (90, 900)},
        "cook", "cooks", NAMES, {"city": CITIES, "stars": (1, 30)},
    ),
)  # fmt: skip

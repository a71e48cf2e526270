"""Small tables of people, as text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.envs._machinery.words import CITIES, COLOURS, FOODS, JOBS, NAMES

# column: how to draw a cell
TEXT_COLUMNS = {"city": CITIES, "job": JOBS, "color": COLOURS, "food": FOODS}
NUMBER_COLUMNS = {"age": (18, 89), "room": (100, 499), "points": (10, 99), "height": (150, 199)}


@dataclass(frozen=True)
class Table:
    """``Table(("name", "age"), (("Mia", 34), ("Tom", 51)))``; the first column is unique."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def text(self) -> str:
        """One line a row, cells between bars."""
        return "\n".join(" | ".join(str(cell) for cell in row) for row in (self.columns, *self.rows))

    def cell(self, key: str, column: str) -> Any:
        """The cell of the row that starts with ``key``."""
        row = next(r for r in self.rows if r[0] == key)
        return row[self.columns.index(column)]

    def column(self, name: str) -> tuple[Any, ...]:
        """All cells of a column, from the top."""
        at = self.columns.index(name)
        return tuple(row[at] for row in self.rows)


def draw_table(rng: random.Random, num_rows: int, columns: Sequence[str]) -> Table:
    """People with these columns; number columns hold different numbers, "boss" makes everybody's boss the next of a shuffle."""
    names = rng.sample(NAMES, num_rows)
    cells: list[Sequence[Any]] = []
    for column in columns:
        if column == "boss":
            ring = rng.sample(names, num_rows)
            after = {a: ring[(i + 1) % num_rows] for i, a in enumerate(ring)}
            cells.append([after[name] for name in names])
        elif column in NUMBER_COLUMNS:
            low, high = NUMBER_COLUMNS[column]
            cells.append(rng.sample(range(low, high + 1), num_rows))
        else:
            cells.append(rng.choices(TEXT_COLUMNS[column], k=num_rows))
    return Table(("name", *columns), tuple(zip(names, *cells, strict=True)))


def num_rows(level: int) -> int:
    """3 rows at level 0, 4 at level 1, 39 at level 9."""
    return round(3 + 0.4 * level * (level + 1))

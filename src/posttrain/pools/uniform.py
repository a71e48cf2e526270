"""Every task equally often: environments take turns, each in the order of its tasks; finite ones start over, shuffled."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.errors import UsageError
from posttrain.pools._base import OpenPool, TaskSource
from posttrain.pools._stream import Stream, empty
from posttrain.types import Group, Task


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Draws every environment and every task equally often. Nothing that a group shows changes what comes next."""

    def open(self, environments: Sequence[TaskSource], seed: int) -> OpenUniform:
        """The pool over these environments."""
        return OpenUniform(environments, seed)


class OpenUniform(OpenPool):
    """State: how far each environment was read, and how many tasks it has given."""

    def __init__(self, environments: Sequence[TaskSource], seed: int) -> None:
        self.seed = seed
        self.sources = list(environments)
        self._start()

    def _start(self) -> None:
        self.turn = 0
        self.streams = [Stream(e) for e in self.sources]
        self.pasts: list[list[Task]] = [[] for _ in self.sources]
        self.drawn = [0] * len(self.sources)

    def next(self, n: int) -> list[tuple[Task, int]]:
        """n tasks, environments in turn. Raises ``UsageError`` for one without training tasks."""
        out = []
        for _ in range(n):
            out.append(self._draw(self.turn % len(self.sources)))
            self.turn += 1
        return out

    def _draw(self, i: int) -> tuple[Task, int]:
        task = self.streams[i].next()
        past = self.pasts[i]
        if task is not None:
            past.append(task)
            self.drawn[i] += 1
            return task, 0
        if not past:
            raise empty(self.sources[i].name)
        epoch, at = divmod(self.drawn[i], len(past))
        order = list(range(len(past)))
        random.Random(f"{self.seed}|{self.sources[i].name}|{epoch}").shuffle(order)
        self.drawn[i] += 1
        return past[order[at]], epoch

    def observe(self, group: Group) -> None:
        """Teaches nothing here."""

    def state(self) -> dict[str, Any]:
        """Positions in the streams, and which of them gave up."""
        names = [s.name for s in self.sources]
        return {
            "turn": self.turn,
            "environments": names,
            "positions": [s.position for s in self.streams],
            "exhausted": [s.exhausted for s in self.streams],
            "drawn": list(self.drawn),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Reads the streams again up to where they stood."""
        names = [s.name for s in self.sources]
        if state["environments"] != names:
            raise UsageError(f"the saved task pool is over {state['environments']}, this run has {names}; start a new run")
        self._start()
        self.turn, self.drawn = state["turn"], list(state["drawn"])
        for i, stream in enumerate(self.streams):
            self.pasts[i] = list(stream.advance(state["positions"][i]).values())
            stream.exhausted = state["exhausted"][i]

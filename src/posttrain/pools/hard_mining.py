"""Tasks that are failed or mixed return more often, mixed ones most; solved ones fade but never vanish.

Differs from prioritised replay in what it keeps: one running pass rate and one running share of mixed groups a task. A
mixed group is the only one that a group baseline learns from; a failed task may become mixed; a solved one is
looked at again now and then, so that forgetting is noticed. ``neighbours`` of hard tasks join the pool.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from posttrain.errors import UsageError
from posttrain.pools._base import OpenPool, TaskSource
from posttrain.pools._stream import Stream, empty
from posttrain.types import Group, Task

WAITING = 4  # hard tasks whose neighbours may wait for their first draw, an environment; more would crowd out what returns
DEPTH = 3  # neighbours of neighbours of neighbours: further ones have little to do with the task that was hard


@dataclass(frozen=True, kw_only=True)
class HardMining:
    """A share ``fresh`` of draws are new tasks, the rest return, weighted by what their last groups showed.

    ``mixed``, ``failed`` and ``solved`` weigh a task whose groups are mixed, all failed, all solved; ``rate`` is how fast the
    estimates follow (1: only the last group counts). A hard task brings ``neighbours`` new tasks like it, once; at most
    ``max_tasks`` an environment are kept. Environments take turns, so each gets the same number of draws.
    """

    fresh: float = 0.5
    mixed: float = 1.0
    failed: float = 0.4
    solved: float = 0.05
    rate: float = 0.5
    neighbours: int = 2
    max_tasks: int = 2000

    def __post_init__(self) -> None:
        if not 0 <= self.fresh <= 1 or not 0 < self.rate <= 1:
            raise ValueError(f"fresh is a share in [0, 1] and rate one in (0, 1]; got fresh={self.fresh}, rate={self.rate}")
        if not 0 < self.solved <= min(self.mixed, self.failed):
            raise ValueError(
                f"solved={self.solved} must be above 0 (solved tasks never vanish) and at most "
                f"mixed={self.mixed} and failed={self.failed}"
            )
        if self.neighbours < 0 or self.max_tasks < 1:
            raise ValueError(f"neighbours={self.neighbours} must be at least 0 and max_tasks={self.max_tasks} at least 1")

    def open(self, environments: Sequence[TaskSource], seed: int) -> OpenHardMining:
        """The pool over these environments."""
        return OpenHardMining(self, environments, seed)


@dataclass
class Known:
    """A task of the pool. ``origin`` makes it again: a position in the stream, then the index among neighbours, step by step."""

    task: Task
    origin: tuple[int, ...]
    pass_rate: float  # running share of attempts with verdict ok
    mixed: float  # running share of mixed groups
    visits: int = 0
    observed: int = 0
    in_flight: int = 0
    has_neighbours: bool = False


@dataclass
class Place:
    """What the pool knows of one environment, in the order in which tasks came in."""

    source: TaskSource
    stream: Stream
    known: dict[str, Known] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)  # prompt hashes of tasks that made room


class OpenHardMining(OpenPool):
    """Deterministic: a draw depends on the seed, the number of draws before it, and what was observed."""

    def __init__(self, options: HardMining, environments: Sequence[TaskSource], seed: int) -> None:
        self.options = options
        self.seed = seed
        self.sources = list(environments)
        self._start()

    def _start(self) -> None:
        self.draws = 0
        self.places = [Place(e, Stream(e)) for e in self.sources]
        self.by_name = {p.source.name: p for p in self.places}

    def next(self, n: int) -> list[tuple[Task, int]]:
        """n tasks, environments in turn; one comes twice only where nothing else is left. Raises ``UsageError`` for no tasks."""
        out: list[tuple[Task, int]] = []
        taken: set[str] = set()
        for _ in range(n):
            known = self._draw(self.places[self.draws % len(self.places)], taken)
            taken.add(known.task.id)
            out.append((known.task, known.visits))
            known.visits += 1
            known.in_flight += 1
            self.draws += 1
        return out

    def weight(self, known: Known) -> float:
        """How often a task returns: between ``solved`` and ``mixed``."""
        o = self.options
        unmixed = o.failed * (1 - known.pass_rate) + o.solved * known.pass_rate
        return o.mixed * known.mixed + unmixed * (1 - known.mixed)

    def observe(self, group: Group) -> None:
        """Moves the estimates of the group's task, and brings its neighbours in the first time it is hard."""
        place = self.by_name.get(group.task.environment)
        known = place.known.get(group.task.id) if place else None
        if place is None or known is None:
            return
        known.in_flight = max(0, known.in_flight - 1)
        if not group.trained:
            return
        passed = sum(t.verdict is not None and t.verdict.status == "ok" for t in group.trained) / len(group.trained)
        rate = self.options.rate if known.observed else 1.0
        known.pass_rate += rate * (passed - known.pass_rate)
        known.mixed += rate * (float(group.mixed) - known.mixed)
        known.observed += 1
        if (group.mixed or passed < 1) and not known.has_neighbours:
            self._grow(place, known)

    def _draw(self, place: Place, taken: set[str]) -> Known:
        rng = random.Random(f"{self.seed}|{self.draws}")
        idle = [k for k in place.known.values() if not k.in_flight and k.task.id not in taken]
        if rng.random() < self.options.fresh or not idle:
            known = self._fresh(place)
            if known is not None:
                return known
        choice = idle or [k for k in place.known.values() if k.task.id not in taken] or list(place.known.values())
        if not choice:
            raise empty(place.source.name)
        return rng.choices(choice, weights=[self.weight(k) for k in choice])[0]

    def _fresh(self, place: Place) -> Known | None:
        task = place.stream.next()
        if task is None:
            return None
        return self._add(place, Known(task, (place.stream.position,), pass_rate=0.5, mixed=0.0))

    def _grow(self, place: Place, hard: Known) -> None:
        """Brings neighbours in, unless enough of them wait for their first draw or they are too far from the stream."""
        n = self.options.neighbours
        waiting = sum(len(k.origin) > 1 and not k.visits for k in place.known.values())
        if not n or waiting >= WAITING * n or len(hard.origin) > DEPTH:
            return
        hard.has_neighbours = True
        for index, task in enumerate(place.source.neighbours(hard.task, n)):
            if task.id not in place.known and place.stream.admit(task):
                self._add(place, Known(task, (*hard.origin, index), hard.pass_rate, hard.mixed))

    def _add(self, place: Place, known: Known) -> Known:
        """Takes a task in; over the bound, the lightest idle one that was seen before makes room."""
        place.known[known.task.id] = known
        if len(place.known) > self.options.max_tasks:
            idle = [k for k in place.known.values() if k.observed and not k.in_flight]
            if idle:
                lightest = min(idle, key=self.weight)
                place.gone.append(lightest.task.prompt_hash)
                del place.known[lightest.task.id]
        return known

    def state(self) -> dict[str, Any]:
        """Draws so far, and by environment the stream's position and every task's estimates (its origin instead of its text)."""
        return {
            "draws": self.draws,
            "environments": {
                p.source.name: {
                    "position": p.stream.position,
                    "exhausted": p.stream.exhausted,
                    "gone": list(p.gone),
                    "tasks": [
                        [k.task.id, list(k.origin), k.pass_rate, k.mixed, k.visits, k.observed, k.in_flight, k.has_neighbours]
                        for k in p.known.values()
                    ],
                }
                for p in self.places
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Makes the tasks again from where they came. Raises ``UsageError`` where the environments are others."""
        names = [s.name for s in self.sources]
        if list(state["environments"]) != names:
            raise UsageError(f"the saved task pool is over {list(state['environments'])}, this run has {names}; start a new run")
        self._start()
        self.draws = state["draws"]
        for place in self.places:
            saved = state["environments"][place.source.name]
            fresh = place.stream.advance(saved["position"])
            place.stream.exhausted, place.gone = saved["exhausted"], list(saved["gone"])
            place.stream.mark(place.gone)
            for task_id, origin, *rest in saved["tasks"]:
                task = self._made_again(place, fresh, origin)
                if task is None or task.id != task_id:
                    raise UsageError(
                        f"{place.source.name} no longer makes the task {task_id}; its version or data changed: start a new run"
                    )
                place.known[task_id] = Known(task, tuple(origin), *rest)

    def _made_again(self, place: Place, fresh: dict[int, Task], origin: list[int]) -> Task | None:
        task = fresh.get(origin[0])
        for index in origin[1:]:
            near = place.source.neighbours(task, self.options.neighbours) if task else []
            task = near[index] if index < len(near) else None
        if task is not None and len(origin) > 1:
            place.stream.admit(task)
        return task

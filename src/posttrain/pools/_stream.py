"""The training tasks of one environment, one after the other: never a held-out one, never a prompt twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from posttrain.errors import UsageError
from posttrain.pools._base import TaskSource
from posttrain.types import Task

_BARREN = 10_000  # tasks in a row that cannot be drawn, after which an endless stream counts as exhausted


class Stream:
    """A cursor over ``source.tasks()``. ``position`` counts tasks taken off the source, skipped ones too."""

    def __init__(self, source: TaskSource) -> None:
        self.source = source
        self.position = 0
        self.exhausted = False
        self._seen: set[str] = set()
        self._iterator: Iterator[Task] = iter(source.tasks())

    def next(self) -> Task | None:
        """The next training task, None where there is none left."""
        barren = 0
        while not self.exhausted and barren < _BARREN:
            task = next(self._iterator, None)
            if task is None:
                break
            self.position += 1
            if self.admit(task):
                return task
            barren += 1
        self.exhausted = True
        return None

    def admit(self, task: Task) -> bool:
        """Whether a task may train and its prompt is new; it counts as seen from now on."""
        if task.held_out or task.prompt_hash in self._seen:
            return False
        self._seen.add(task.prompt_hash)
        return True

    def mark(self, prompt_hashes: Iterable[str]) -> None:
        """Prompts that count as seen."""
        self._seen.update(prompt_hashes)

    def advance(self, position: int) -> dict[int, Task]:
        """Takes tasks off until ``position`` and returns the training ones by their position: a restore."""
        taken: dict[int, Task] = {}
        while self.position < position:
            task = next(self._iterator, None)
            if task is None:
                raise UsageError(
                    f"{self.source.name} has {self.position} tasks now, the saved task pool had read {position}; "
                    "its data were changed since: start a new run, or bring the old rows back"
                )
            self.position += 1
            if self.admit(task):
                taken[self.position] = task
        return taken


def empty(name: str) -> UsageError:
    """An environment that cannot train."""
    return UsageError(
        f"{name} has no task to train on (one prompt in eight is held out for evaluation); bring more rows, or leave it out"
    )

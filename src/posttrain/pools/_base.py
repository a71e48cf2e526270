"""The task pool's seam: which task next, and what the last groups taught."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from posttrain.types import Group, Task


class TaskSource(Protocol):
    """The part of an environment that a pool needs."""

    @property
    def name(self) -> str: ...

    def tasks(self) -> Iterable[Task]: ...

    def neighbours(self, task: Task, n: int) -> list[Task]: ...


class OpenPool(ABC):
    """A pool over opened environments. Never draws a held-out task. A pure function of its state and of what it observed."""

    @abstractmethod
    def next(self, n: int) -> list[tuple[Task, int]]:
        """n tasks, each with its visit number (0 the first time)."""

    @abstractmethod
    def observe(self, group: Group) -> None:
        """Takes in a group's rewards; a group without a trained member teaches nothing."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """JSON-serialisable; ``restore(state())`` on a fresh pool over the same environments is exact."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Returns to a state."""


class Pool(Protocol):
    """The plug-in: a frozen dataclass whose fields are its options."""

    def open(self, environments: Sequence[TaskSource], seed: int) -> OpenPool: ...

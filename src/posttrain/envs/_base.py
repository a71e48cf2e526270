"""The environment's seams: tasks + interaction + verifier; and the endless, graded families of our own."""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from posttrain.plugins import snake
from posttrain.sandboxes._base import Sandbox
from posttrain.types import Observation, Response, Task, ToolSpec, Turn
from posttrain.verifiers._base import Verifier


class Session(ABC):
    """The interactive part of one attempt; the same object answers in training, evaluation and serving."""

    @abstractmethod
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of this attempt."""

    @abstractmethod
    async def step(self, turn: Turn) -> Observation:
        """Answers an assistant turn. A ``ToolError`` raised here is shown to the policy through its one renderer."""

    def snapshot(self) -> Any:
        """The whole state, JSON-serialisable; ``restore(snapshot())`` is exact."""
        raise TypeError(f"{type(self).__name__} keeps no state that can be branched from; override snapshot and restore")

    def restore(self, state: Any) -> None:
        """Returns to a snapshot."""
        raise TypeError(f"{type(self).__name__} keeps no state that can be branched from; override snapshot and restore")

    def artefacts(self) -> Mapping[str, Any]:
        """What the verifier sees besides the turns: final state, files. JSON-serialisable."""
        return {}


@dataclass(frozen=True)
class Environment(ABC):
    """Tasks, how to interact with one, and the verifier that judges it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """``<domain>/<family>``."""

    @property
    @abstractmethod
    def verifier(self) -> Verifier:
        """Judges this environment's trajectories."""

    @abstractmethod
    def tasks(self) -> Iterable[Task]:
        """All tasks in a fixed order; endless for a family. Held-out ones (``task.held_out``) are among them."""

    async def start(self, task: Task, sandbox: Sandbox | None) -> Session | None:
        """Opens an attempt; None for a single turn."""
        return None

    def neighbours(self, task: Task, n: int) -> list[Task]:
        """New tasks like this one; none for finite data."""
        return []

    def reference(self, task: Task) -> Response | None:
        """A worked answer to learn from and to show, None where there is none."""
        return None

    def probes(self) -> Iterator[tuple[Task, Response, bool]]:
        """Known answers as (task, response, is right), checked before a run starts; none where nothing is known."""
        return iter(())


@dataclass(frozen=True)
class Family(Environment):
    """An endless, graded environment of ours: one frozen dataclass; its class in snake case is its name.

    ``level`` holds the levels that ``tasks`` draws from, in turn; ``first_seed`` shifts the stream.
    """

    level: tuple[int, ...] = (0,)
    first_seed: int = 0

    version: ClassVar[str] = "1"
    levels: ClassVar[range] = range(10)
    templates: ClassVar[int] = 4  # how many wordings of the prompt there are, at least 4
    gate_seeds: ClassVar[int] = 200  # tasks of a level that its contract judges; fewer where a verdict starts sandboxes

    def __post_init__(self) -> None:
        bad = [x for x in self.level if x not in self.levels]
        if bad or not self.level:
            raise ValueError(f"{self.name} has levels {self.levels.start}-{self.levels.stop - 1}, got {self.level}")

    @property
    def name(self) -> str:
        return family_name(type(self))

    @abstractmethod
    def generate(self, seed: int, level: int) -> Task:
        """Pure: byte-identical across processes and hash seeds. Use ``self.rng(seed, level)`` and ``self.task(...)``."""

    @abstractmethod
    def oracle(self, task: Task) -> Response:
        """Judged 1.0; with worked steps where the level needs them."""

    def reference(self, task: Task) -> Response:
        """The oracle's answer."""
        return self.oracle(task)

    @abstractmethod
    def decoys(self, task: Task) -> list[Response]:
        """At least three well-formed near misses, format tricks or hacks, all judged < 1.0; at most one is junk."""

    @abstractmethod
    def size(self, task: Task) -> float:
        """The size metric; grows with the level, level 9 at least 5x level 0 on average."""

    def rng(self, seed: int, level: int) -> random.Random:
        """The one source of randomness of a task."""
        material = f"{self.name}@{self.version}/L{level}/s{seed}".encode()
        return random.Random(int.from_bytes(hashlib.sha256(material).digest()[:8], "big"))

    def task_id(self, seed: int, level: int) -> str:
        """Stable over processes; names everything that ``generate`` depends on."""
        return f"{self.name}@{self.version}/L{level}/s{seed}"

    def tasks(self) -> Iterator[Task]:
        seed = self.first_seed
        while True:
            yield self.generate(seed, self.level[seed % len(self.level)])
            seed += 1

    def neighbours(self, task: Task, n: int) -> list[Task]:
        """Fresh seeds at the task's level and the one below, far from the stream of ``tasks``."""
        start = 1_000_000_000 + int.from_bytes(hashlib.sha256(task.id.encode()).digest()[:6], "big")
        lower = max(task.level - 1, self.levels.start)
        return [self.generate(start + i, task.level if i % 2 == 0 else lower) for i in range(n)]

    def probes(self) -> Iterator[tuple[Task, Response, bool]]:
        for level in self.level:
            task = self.generate(7, level)
            yield task, self.oracle(task), True
            for decoy in self.decoys(task):
                yield task, decoy, False


def family_name(cls: type) -> str:
    """``posttrain.envs.math.linear:LinearEquation`` -> "math/linear_equation" (a file by path: its stem is the domain)."""
    parts = cls.__module__.split(".")
    domain = parts[-2] if len(parts) >= 3 and parts[:2] == ["posttrain", "envs"] else parts[-1]
    return f"{domain}/{snake(cls.__name__)}"

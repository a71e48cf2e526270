"""A stream of numbered tasks, and groups with chosen results."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from posttrain.types import Group, Message, Task, Trajectory, Turn, Verdict


class Numbers:
    """Tasks 0, 1, 2 ... of one environment; its neighbours are far away."""

    def __init__(self, name: str = "toy/a", num: int | None = None, repeats: bool = False) -> None:
        self.name, self.num, self.repeats = name, num, repeats

    def task(self, n: int) -> Task:
        said = n // 2 if self.repeats else n
        return Task(
            id=f"{self.name}/{n}", environment=self.name, seed=n, prompt=(Message(role="user", content=f"{self.name} {said}"),)
        )

    def tasks(self) -> Iterator[Task]:
        n = 0
        while self.num is None or n < self.num:
            yield self.task(n)
            n += 1

    def neighbours(self, task: Task, n: int) -> list[Task]:
        return [self.task(1_000_000 + task.seed * 10 + i) for i in range(n)]


def group(task: Task, passes: int, of: int = 8, broken: int = 0) -> Group:
    """A group of which ``passes`` are right and ``broken`` failed on our side."""
    turns = (Turn(role="prompt", token_ids=(1,)),)
    members = [
        Trajectory(
            task=task, attempt=i, turns=turns, verdict=Verdict(status="ok" if i < passes else "wrong"), reward=float(i < passes)
        )
        for i in range(of - broken)
    ]
    members += [Trajectory(task=task, attempt=of - 1 - i, turns=turns, outcome="infra_error") for i in range(broken)]
    return Group(task=task, trajectories=tuple(members))


@pytest.fixture
def toy() -> SimpleNamespace:
    return SimpleNamespace(Numbers=Numbers, group=group)

"""Every listed pool passes its gate, and the gate catches every kind of broken pool."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from posttrain import plugins
from posttrain.contracts.pools import Numbers, check
from posttrain.errors import HostError, UsageError
from posttrain.pools._base import TaskSource
from posttrain.pools.uniform import OpenUniform
from posttrain.types import Group, Task


class Open(OpenUniform):
    """Sound; the broken ones differ from it in one thing."""


class Short(Open):
    """One too few."""

    def next(self, n: int) -> list[tuple[Task, int]]:
        return super().next(n)[1:]


class DrawsHeldOut(Open):
    """One of the held-out tasks among the others."""

    def next(self, n: int) -> list[tuple[Task, int]]:
        return [(next(t for t in Numbers().tasks() if t.held_out), 0), *super().next(n)[1:]]


class NoVisits(Open):
    """The same task comes as new each time."""

    def next(self, n: int) -> list[tuple[Task, int]]:
        return [(next(t for t in Numbers().tasks() if not t.held_out), 0)] * n


class Chance(Open):
    """Draws in an order of its own each time."""

    def next(self, n: int) -> list[tuple[Task, int]]:
        drawn = super().next(n)
        random.SystemRandom().shuffle(drawn)
        return drawn


class NotJson(Open):
    """A set in its state."""

    def state(self) -> dict[str, Any]:
        return super().state() | {"seen": {1}}


class ForgetsTurn(Open):
    """Restores to the first environment's turn."""

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.turn = 0


class HiddenState(Open):
    """Something that it observed is not in its state."""

    seen = 0

    def observe(self, group: Group) -> None:
        self.seen += 1

    def next(self, n: int) -> list[tuple[Task, int]]:
        return super().next(n)[:: -1 if self.seen > 50 else 1]


class Exhausts(Open):
    """Ends with its data."""

    def next(self, n: int) -> list[tuple[Task, int]]:
        return [(task, visit) for task, visit in super().next(n) if visit == 0]


class BreaksOnFailures(Open):
    """Divides by the trained members."""

    def observe(self, group: Group) -> None:
        sum(group.rewards) / len(group.rewards)


class TakesAnything(Open):
    """Starts over where a state does not fit."""

    def restore(self, state: dict[str, Any]) -> None:
        if state["environments"] == [s.name for s in self.sources]:
            super().restore(state)


class WrongError(Open):
    """Blames the host."""

    def next(self, n: int) -> list[tuple[Task, int]]:
        try:
            return super().next(n)
        except UsageError as error:
            raise HostError(str(error)) from error


class NoPool:
    """Draws, but is no pool."""

    def __init__(self, *given: Any) -> None:
        self.inner = Open(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass(frozen=True)
class Opens:
    """The plug-in that opens one of these."""

    cls: Any

    def open(self, environments: Sequence[TaskSource], seed: int) -> Any:
        return self.cls(environments, seed)


@pytest.mark.parametrize("name", plugins.names("pools"))
def test_every_pool_passes(name: str) -> None:
    assert check(plugins.build("pools", name)) == []


def test_a_sound_pool_passes() -> None:
    assert check(Opens(Open)) == []


@pytest.mark.parametrize(
    ("cls", "fault"),
    [
        (Short, "next(9) gives 8 tasks"),
        (DrawsHeldOut, "held out for evaluation"),
        (NoVisits, "task and visit name a draw"),
        (Chance, "draw different tasks"),
        (NotJson, "not JSON"),
        (ForgetsTurn, "has another state"),
        (ForgetsTurn, "goes on with other tasks"),
        (HiddenState, "goes on with other tasks"),
        (Exhausts, "start over"),
        (BreaksOnFailures, "raised ZeroDivisionError"),
        (TakesAnything, "the state of other environments is accepted"),
        (WrongError, "gives HostError"),
        (NoPool, "inherits from posttrain.pools._base.OpenPool"),
    ],
)
def test_a_broken_pool_is_caught(cls: Any, fault: str) -> None:
    said = check(Opens(cls))
    assert any(fault in x for x in said), said


def test_what_is_no_pool_is_said() -> None:
    assert check(object()) == ["it has no method open(environments, seed) -> OpenPool"]

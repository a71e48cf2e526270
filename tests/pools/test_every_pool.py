"""What holds for every pool that ships: its state says all of what comes next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from posttrain import plugins
from posttrain.types import Task


def running_dry(toy: SimpleNamespace, name: str, num: int, barren: int) -> object:
    """A source that repeats its ``num`` tasks for longer than a pool looks, then has new ones."""
    numbers = toy.Numbers(name)

    class RunningDry(toy.Numbers):  # type: ignore[misc, name-defined]
        def tasks(self) -> Iterator[Task]:
            yield from (numbers.task(n) for n in range(num))
            yield from (numbers.task(n % num) for n in range(barren))
            yield from (numbers.task(n) for n in range(num, num + 50))

    return RunningDry(name)


@pytest.mark.parametrize("name", plugins.names("pools"))
@pytest.mark.parametrize("steps", [1, 4, 12])
def test_a_restored_pool_goes_on_the_same_past_the_end_of_what_is_new(toy: SimpleNamespace, name: str, steps: int) -> None:
    def fresh() -> object:
        sources = [running_dry(toy, "toy/a", 20, 10_500), toy.Numbers("toy/b", 9), toy.Numbers("toy/c")]
        return plugins.build("pools", name).open(sources, 3)

    def live(pool: object, num: int) -> list[tuple[str, int]]:
        drawn = []
        for _ in range(num):
            for task, visit in pool.next(9):  # type: ignore[attr-defined]
                drawn.append((task.id, visit))
                pool.observe(toy.group(task, len(drawn) % 9))  # type: ignore[attr-defined]
        return drawn

    pool, other = fresh(), fresh()
    live(pool, steps)
    other.restore(json.loads(json.dumps(pool.state())))  # type: ignore[attr-defined]
    assert other.state() == pool.state()  # type: ignore[attr-defined]
    assert live(pool, 15) == live(other, 15)
    assert other.state() == pool.state()  # type: ignore[attr-defined]

"""Mixed and failed tasks return more often, solved ones still return, environments stay balanced, a restore is exact."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from posttrain.errors import UsageError
from posttrain.pools.hard_mining import HardMining, OpenHardMining
from posttrain.types import Task


def kind(task: Task) -> str:
    """Each task is for ever solved, mixed or failed."""
    return ("solved", "mixed", "failed")[int(hashlib.sha256(task.id.encode()).hexdigest(), 16) % 3]


PASSES = {"solved": 8, "mixed": 4, "failed": 0}


def live(toy: SimpleNamespace, pool: OpenHardMining, steps: int, n: int = 12) -> list[tuple[Task, int]]:
    out = []
    for _ in range(steps):
        drawn = pool.next(n)
        out += drawn
        for task, _visit in drawn:
            pool.observe(toy.group(task, PASSES[kind(task)]))
    return out


def test_mixed_return_most_then_failed_and_solved_never_vanish(toy: SimpleNamespace) -> None:
    pool = HardMining(neighbours=0, fresh=0.2).open([toy.Numbers()], 0)
    drawn = live(toy, pool, 300)
    ids = {t.id: kind(t) for t, _ in drawn}
    times = Counter(t.id for t, _ in drawn)
    returns = {k: sum(times[i] - 1 for i in ids if ids[i] == k) / sum(v == k for v in ids.values()) for k in PASSES}
    assert returns["mixed"] > 1.5 * returns["failed"] > 4 * returns["solved"] > 0
    assert sum(1 for i, k in ids.items() if k == "solved" and times[i] > 1) >= 10
    fresh = sum(v == 0 for _, v in drawn) / len(drawn)
    assert 0.17 < fresh < 0.23
    assert not any(t.held_out for t, _ in drawn)
    assert len({(t.id, v) for t, v in drawn}) == len(drawn)


def test_a_task_that_is_learnt_fades_and_one_that_is_forgotten_comes_back(toy: SimpleNamespace) -> None:
    pool = HardMining(neighbours=0).open([toy.Numbers()], 0)
    ((task, _),) = pool.next(1)
    known = pool.places[0].known[task.id]
    weights = []
    for passes in (0, 4, 8, 8, 8, 8, 0, 0):
        pool.observe(toy.group(task, passes))
        weights.append(pool.weight(known))
    failed, mixed, *solved, slipping, lost = weights
    assert mixed > failed > 0 and solved == sorted(solved, reverse=True) and 0.05 <= solved[-1] < 0.12
    assert lost > slipping > solved[-1]


def test_a_group_without_a_trained_member_teaches_nothing(toy: SimpleNamespace) -> None:
    pool = HardMining().open([toy.Numbers()], 0)
    ((task, _),) = pool.next(1)
    pool.observe(toy.group(task, 0, broken=8))
    known = pool.places[0].known[task.id]
    assert (known.observed, known.pass_rate, known.in_flight) == (0, 0.5, 0) and len(pool.places[0].known) == 1


def test_neighbours_of_hard_tasks_join_once_and_bounded(toy: SimpleNamespace) -> None:
    pool = HardMining(neighbours=3, max_tasks=50).open([toy.Numbers()], 0)
    ((task, _),) = pool.next(1)
    for _ in range(3):
        pool.observe(toy.group(task, 2))
    near = [k for k in pool.places[0].known.values() if k.task.seed >= 1_000_000]
    assert 0 < len(near) <= 3 and not any(k.task.held_out for k in near)
    assert all(pool.weight(k) > 0.5 for k in near), "they start as their parent stands"
    drawn = live(toy, pool, 100)
    assert any(t.seed >= 1_000_000 for t, _ in drawn)
    assert len(pool.places[0].known) <= 50 + 12


def test_a_solved_task_brings_no_neighbours(toy: SimpleNamespace) -> None:
    pool = HardMining().open([toy.Numbers()], 0)
    ((task, _),) = pool.next(1)
    pool.observe(toy.group(task, 8))
    assert len(pool.places[0].known) == 1


def test_environments_are_balanced_whatever_they_show(toy: SimpleNamespace) -> None:
    pool = HardMining().open([toy.Numbers("toy/a"), toy.Numbers("toy/b"), toy.Numbers("toy/c", 9)], 0)
    drawn = []
    for _ in range(50):
        step = pool.next(7)
        drawn += step
        for task, _ in step:
            pool.observe(toy.group(task, 4 if task.environment == "toy/a" else 8))
    assert set(Counter(t.environment for t, _ in drawn).values()) <= {116, 117}


def test_one_step_repeats_a_task_only_where_it_must(toy: SimpleNamespace) -> None:
    pool = HardMining().open([toy.Numbers("toy/a", 6, repeats=True)], 0)
    train = {t.prompt_hash for t in toy.Numbers("toy/a", 6, repeats=True).tasks() if not t.held_out}
    drawn = [t.prompt_hash for t, _ in pool.next(len(train))]
    assert set(drawn) == train, "prompts that repeat are one task"
    assert len(pool.next(2 * len(train))) == 2 * len(train)


@pytest.mark.parametrize("options", [{}, {"max_tasks": 15}, {"fresh": 0.1, "neighbours": 5, "max_tasks": 30}])
def test_a_restored_pool_goes_on_the_same(toy: SimpleNamespace, options: dict[str, Any]) -> None:
    def fresh() -> OpenHardMining:
        return HardMining(**options).open([toy.Numbers("toy/a"), toy.Numbers("toy/b", 40, repeats=True)], 3)

    pool = fresh()
    live(toy, pool, 12)
    pending = pool.next(5)
    state = json.loads(json.dumps(pool.state()))
    other = fresh()
    other.restore(state)
    assert other.state() == pool.state()
    for p in (pool, other):
        for task, _ in pending:
            p.observe(toy.group(task, 1))
    assert live(toy, pool, 25) == live(toy, other, 25)
    assert other.state() == pool.state()


def test_the_seed_decides(toy: SimpleNamespace) -> None:
    first, same, other = (live(toy, HardMining().open([toy.Numbers()], seed), 10) for seed in (1, 1, 2))
    assert first == same != other


def test_options_that_cannot_be_are_refused(toy: SimpleNamespace) -> None:
    for bad in ({"fresh": 1.5}, {"solved": 0.0}, {"rate": 0.0}, {"neighbours": -1}, {"solved": 0.9}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            HardMining(**bad)
    with pytest.raises(UsageError, match="no task to train on"):
        HardMining().open([toy.Numbers("toy/a", 0)], 0).next(1)
    state = HardMining().open([toy.Numbers("toy/a")], 0).state()
    with pytest.raises(UsageError, match="start a new run"):
        HardMining().open([toy.Numbers("toy/b")], 0).restore(state)


@pytest.mark.parametrize("option", ["fresh", "mixed", "failed", "solved", "rate", "neighbours", "max_tasks"])
def test_every_option_changes_the_draws(toy: SimpleNamespace, option: str) -> None:
    other = {"fresh": 0.2, "mixed": 3.0, "failed": 0.9, "solved": 0.3, "rate": 0.1, "neighbours": 0, "max_tasks": 10}[option]

    def run(**options: Any) -> list[str]:
        pool = HardMining(**options).open([toy.Numbers()], 0)
        out = []
        for step in range(30):
            for task, _ in pool.next(8):
                out.append(task.id)
                pool.observe(toy.group(task, (PASSES[kind(task)] + step) % 9))
        return out

    assert run() != run(**{option: other})

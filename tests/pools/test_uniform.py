"""Everything equally often, and exactly where it stood after a restore."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from posttrain.errors import UsageError
from posttrain.pools.uniform import Uniform


def test_every_task_and_environment_equally_often(toy: SimpleNamespace) -> None:
    a, b = toy.Numbers("toy/a", 40), toy.Numbers("toy/b", 80)
    pool = Uniform().open([a, b], 0)
    train = {e.name: sum(not t.held_out for t in e.tasks()) for e in (a, b)}
    drawn = [pool.next(10) for _ in range(60)]
    tasks = [t for step in drawn for t, _ in step]
    assert not any(t.held_out for t in tasks)
    assert Counter(t.environment for t in tasks) == {"toy/a": 300, "toy/b": 300}
    for name, n in train.items():
        times = Counter(t.id for t in tasks if t.environment == name)
        assert len(times) == n and max(times.values()) - min(times.values()) <= 1
    visits = [(t.id, v) for step in drawn for t, v in step]
    assert len(set(visits)) == len(visits), "a task and its visit name a draw"


def test_nothing_to_train_on_and_changed_data_are_said(toy: SimpleNamespace) -> None:
    with pytest.raises(UsageError, match="toy/a has no task to train on"):
        Uniform().open([toy.Numbers("toy/a", 0)], 0).next(1)
    pool = Uniform().open([toy.Numbers("toy/a", 30)], 0)
    pool.next(10)
    with pytest.raises(UsageError, match="changed"):
        Uniform().open([toy.Numbers("toy/a", 3)], 0).restore(pool.state())
    with pytest.raises(UsageError, match="start a new run"):
        Uniform().open([toy.Numbers("toy/b", 30)], 0).restore(pool.state())

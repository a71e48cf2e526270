"""One attempt, a group or all are ended at once: no retry, no reward, the others go on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from posttrain.rollout.aborts import Aborts
from posttrain.rollout.workers import counts, rollout
from posttrain.types import Group, Sampling


async def rolled(world: SimpleNamespace, engine: Any, aborts: Aborts, name: str, ended: int) -> list[Group]:
    env = world.Toy()
    made = asyncio.ensure_future(
        rollout([(env.task(n), env, 0) for n in (1, 10)], engine, group_size=3, seed=0, sampling=Sampling(), aborts=aborts)
    )
    await asyncio.sleep(0.02)
    assert aborts.abort(name) == ended
    engine.fail = None
    stuck.set()
    groups: list[Group] = await made
    assert aborts.abort() == 0
    return groups


stuck = asyncio.Event()


@pytest.mark.parametrize(("name", "ended"), [("toy/say/1#0.2", 1), ("toy/say/1#0", 3), ("", 6), ("toy/say/1#0.9", 0)])
def test_what_is_named_is_ended_and_no_more(world: SimpleNamespace, name: str, ended: int) -> None:
    global stuck
    stuck = asyncio.Event()
    engine = world.KeyedEngine(fail=lambda r, n: stuck.wait())
    groups = asyncio.run(asyncio.wait_for(rolled(world, engine, Aborts(), name, ended), 20))
    attempts = [t for g in groups for t in g.trajectories]
    gone = [t for t in attempts if t.outcome == "infra_error"]
    assert len(gone) == ended == len(engine.aborted) and all(t.id.startswith(name) and t.reward is None for t in gone)
    assert all(t.metadata["failures"] == ["Aborted"] and t.retries == 0 for t in gone)
    assert all(n == 1 for n in engine.calls.values()) and counts(groups).get("failure/Aborted", 0) == ended


def test_cancelling_the_rollout_is_no_abort_of_its_attempts(world: SimpleNamespace) -> None:
    engine = world.KeyedEngine(fail=lambda r, n: asyncio.sleep(60))

    async def main() -> None:
        env = world.Toy()
        made = asyncio.ensure_future(rollout([(env.task(1), env, 0)], engine, group_size=2, seed=0, sampling=Sampling()))
        await asyncio.sleep(0.02)
        made.cancel()
        with pytest.raises(asyncio.CancelledError):
            await made

    asyncio.run(asyncio.wait_for(main(), 20))
    assert len(engine.aborted) == len(engine.released) == 2

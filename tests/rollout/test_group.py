"""Groups: a failure on our side costs one try, not a reward and not the group."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from posttrain.errors import InfraError, LostAgain
from posttrain.rollout.deadlines import Deadlines
from posttrain.rollout.group import run_group
from posttrain.sandboxes.usage import present
from posttrain.store.records import encode
from posttrain.types import Group, Sampling, Trajectory, Verdict


def group(world: SimpleNamespace, engine: Any, n: int = 1, environment: Any = None, **options: Any) -> Group:
    environment = environment or world.Toy()
    settings = {"group_size": 8, "seed": 0, "sampling": Sampling(), "backoff": 0.0, **options}
    return asyncio.run(run_group(environment.task(n), environment, engine, **settings))


def test_attempts_keep_their_order_and_the_bound(world: SimpleNamespace) -> None:
    engine = world.KeyedEngine()

    async def body() -> Group:
        env = world.Toy()
        return await run_group(env.task(1), env, engine, group_size=8, seed=0, sampling=Sampling(), slots=asyncio.Semaphore(3))

    made = asyncio.run(body())
    assert [t.attempt for t in made.trajectories] == list(range(8))
    assert engine.order == [f"0|toy/say/1|0|{i}|0" for i in range(8)] and engine.peak == 3
    assert made.mixed


def test_a_retry_is_the_same_attempt(world: SimpleNamespace) -> None:
    first_try = world.KeyedEngine(fail=lambda request, n: (_ for _ in ()).throw(InfraError("crash")) if n == 1 else None)
    failed, clean = group(world, first_try), group(world, world.KeyedEngine())
    assert [t.turns for t in failed.trajectories] == [t.turns for t in clean.trajectories]
    assert failed.rewards == clean.rewards
    assert all(t.retries == 1 and t.metadata["failures"] == ["InfraError"] for t in failed.trajectories)
    assert all(n == 2 for n in first_try.calls.values())


def test_what_still_fails_is_left_out_not_zero(world: SimpleNamespace) -> None:
    dead = {0, 5}
    engine = world.KeyedEngine(
        skill=1.0, fail=lambda r, n: (_ for _ in ()).throw(InfraError("crash")) if r.key.attempt in dead else None
    )
    made = group(world, engine)
    assert [t.outcome for t in made.trajectories].count("infra_error") == 2
    assert made.rewards == (1.0,) * 6 and not made.mixed
    assert engine.calls["0|toy/say/1|0|0|0"] == 3 and made.trajectories[0].retries == 2


def test_a_lost_item_is_named_and_dispatched_again(world: SimpleNamespace) -> None:
    events: list[dict[str, Any]] = []
    lost = world.KeyedEngine(fail=lambda r, n: asyncio.sleep(60) if (r.key.attempt, n) == (2, 1) else None)
    made = group(world, lost, deadlines=Deadlines(sample=0.05), events=lambda **e: events.append(e))
    assert made.trajectories[2].outcome == "finished" and made.trajectories[2].retries == 1
    (failure,) = [e for e in events if e["kind"] == "failure"]
    assert failure["what"] == "turn 0 of toy/say/1#0.2 did not finish within 0.05 s"
    assert failure["failure"] == "DeadlineExceeded" and failure["retried"]
    assert sorted(e["attempt"] for e in events if e["kind"] == "attempt") == [f"toy/say/1#0.{i}" for i in range(8)]
    assert all(
        {"sample", "judge", "attempt"} <= set(e["timings"]) and e["staleness"] == 0 for e in events if e["kind"] == "attempt"
    )


def test_an_attempt_that_hangs_whole_is_named(world: SimpleNamespace) -> None:
    engine = world.KeyedEngine(fail=lambda r, n: asyncio.sleep(60))
    made = group(world, engine, group_size=1, deadlines=Deadlines(attempt=0.05))
    assert made.trajectories[0].error == "attempt toy/say/1#0.0 did not finish within 0.05 s"
    assert len(engine.aborted) == 3
    encode(made)


def test_a_verdict_that_failed_is_asked_for_again_without_sampling(world: SimpleNamespace) -> None:
    class Flaky:
        asked = 0

        async def judge(self, trajectory: Trajectory) -> Verdict:
            self.asked += 1
            if self.asked <= 2:
                raise InfraError("worker lost")
            return Verdict(status="ok", reward=1.0)

    engine = world.KeyedEngine()
    made = group(world, engine, group_size=1, environment=world.Toy(judge_with=Flaky()))
    assert made.rewards == (1.0,) and made.trajectories[0].outcome == "finished"
    assert engine.calls == {"0|toy/say/1|0|0|0": 1}


def test_a_bug_is_not_retried(world: SimpleNamespace) -> None:
    class Buggy:
        asked = 0

        async def judge(self, trajectory: Trajectory) -> Verdict:
            self.asked += 1
            raise KeyError("x")

    buggy = Buggy()
    made = group(world, world.KeyedEngine(), group_size=1, environment=world.Toy(judge_with=buggy))
    assert buggy.asked == 1 and made.rewards == () and made.trajectories[0].metadata["failures"] == ["Broken"]


def test_sandboxes_lost_below_are_not_retried_again_and_are_told(world: SimpleNamespace) -> None:
    """Three tries of the sandbox are not three times three."""

    class Loses:
        asked = 0

        async def judge(self, trajectory: Trajectory) -> Verdict:
            self.asked += 1
            with present().timed("create"):
                present().lost.append("gone")
            raise LostAgain("3 sandboxes were lost")

    events: list[dict[str, Any]] = []
    loses = Loses()
    environment = world.Toy(judge_with=loses)
    made = group(world, world.KeyedEngine(), group_size=1, environment=environment, events=lambda **e: events.append(e))
    assert loses.asked == 1 and made.rewards == () and made.trajectories[0].outcome == "infra_error"
    assert [e["kind"] for e in events] == ["failure", "attempt"] and not events[0]["retried"]
    assert events[1]["environment"] == "toy/say" and events[1]["sandboxes_lost"] == ["gone"]
    assert {"queue", "create"} <= set(events[1]["timings"])


def test_the_queue_is_timed(world: SimpleNamespace) -> None:
    engine = world.KeyedEngine(fail=lambda r, n: asyncio.sleep(0.05))

    async def body() -> Group:
        env = world.Toy()
        return await run_group(env.task(1), env, engine, group_size=3, seed=0, sampling=Sampling(), slots=asyncio.Semaphore(1))

    first, second, third = (t.timings["queue"] for t in asyncio.run(body()).trajectories)
    assert first < 0.05 <= second and third >= 0.1


def test_a_branched_group_is_keyed_by_its_start(world: SimpleNamespace) -> None:
    from posttrain.rollout.scripted import ScriptedEngine

    env = world.Counter()
    task = env.task(2)
    parent = group(world, ScriptedEngine(world.ByteRenderer(), [env.oracle(task)]), 2, env, group_size=1).trajectories[0]
    scripts = [world.script("", ("add", {"n": n}), "done") for n in (0, 1)]
    made = group(
        world, ScriptedEngine(world.ByteRenderer(), [*scripts] * 2), 2, env, group_size=2, first_attempt=2, start=(parent, 1)
    )
    assert made.start == (parent.id, 1) and made.rewards == (0.0, 1.0)
    assert [t.id for t in made.trajectories] == ["toy/counter/2#0.2", "toy/counter/2#0.3"]

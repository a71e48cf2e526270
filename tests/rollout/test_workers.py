"""Many groups: infrastructure failures change no expected advantage and waste little; bugs and stale weights end the run."""

from __future__ import annotations

import asyncio
from statistics import mean
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from posttrain.errors import InvalidRun, UsageError
from posttrain.rollout.workers import counts, rollout
from posttrain.store.records import encode
from posttrain.types import Group, Sampling, Trajectory, Verdict


def roll(world: SimpleNamespace, engine: Any, num: int = 60, environment: Any = None, **options: Any) -> list[Group]:
    env = environment or world.Toy()
    settings = {"group_size": 8, "seed": 0, "sampling": Sampling(), "backoff": 0.0, **options}
    return asyncio.run(rollout([(env.task(n), env, 0) for n in range(num)], engine, **settings))


def advantages(groups: list[Group]) -> dict[str, float]:
    """Mean-centred within the group, by attempt."""
    return {t.id: r - mean(g.rewards) for g in groups for t, r in zip(g.trained, g.rewards, strict=True)}


def test_crashes_change_no_expected_advantage_and_are_counted(world: SimpleNamespace) -> None:
    clean = advantages(roll(world, world.KeyedEngine()))
    groups = roll(world, world.KeyedEngine(fail=world.sometimes(0.2)))
    crashed = advantages(groups)
    lost = set(clean) - set(crashed)
    assert 0 < len(lost) < 0.03 * len(clean), "0.2 ** 3 of the attempts fail for good"
    untouched = [g for g in groups if len(g.trained) == 8]
    assert all(crashed[t.id] == clean[t.id] for g in untouched for t in g.trajectories)
    assert abs(mean(crashed.values()) - mean(clean.values())) < 1e-12
    by_reward = [mean(a[i] for g in groups for t in g.trained if (i := t.id) in a and t.reward == 1.0) for a in (clean, crashed)]
    assert abs(by_reward[0] - by_reward[1]) < 0.01, "what a success is worth does not move"
    figures = counts(groups)
    assert figures["outcome/infra_error"] == len(lost) and figures["failure/InfraError"] > 0.2 * 480
    assert all(t.reward is None for g in groups for t in g.trajectories if t.outcome == "infra_error")


def test_one_failed_attempt_does_not_throw_its_group_away(world: SimpleNamespace) -> None:
    """Failures late in an attempt, when its tokens are spent: the verifier's side of a crash."""

    class Crashing:
        exact = world.Exact()
        seen: ClassVar[dict[str, int]] = {}

        async def judge(self, trajectory: Trajectory) -> Verdict:
            self.seen[trajectory.id] = n = self.seen.get(trajectory.id, 0) + 1
            world.sometimes(0.05)(SimpleNamespace(key=trajectory.id), n)
            return await self.exact.judge(trajectory)

    by_judge = counts(roll(world, world.KeyedEngine(), environment=world.Toy(judge_with=Crashing())))
    by_engine = counts(roll(world, world.KeyedEngine(fail=world.sometimes(0.05))))
    for figures in (by_judge, by_engine):
        assert figures["failure/InfraError"] > 0.02 * 480
        assert figures["useful_token_fraction"] >= 0.94


def test_tokens_of_attempts_that_crash_late_count_as_wasted(world: SimpleNamespace) -> None:
    from posttrain.errors import InfraError
    from posttrain.rollout.scripted import ScriptedEngine

    env = world.Counter()
    tries: dict[int, int] = {}

    class Late(world.Counting):  # type: ignore[misc]
        def artefacts(self) -> Any:
            raise InfraError("the sandbox was lost at the end")

    class Crashing(world.Counter):  # type: ignore[misc]
        async def start(self, task: Any, sandbox: Any) -> Any:
            tries[task.answer] = tries.get(task.answer, 0) + 1
            digest = (task.answer * 7919 + tries[task.answer] * 104729) % 100
            return Late() if digest < 5 else world.Counting()

    scripts = [env.oracle(env.task(2))]
    groups = roll(world, ScriptedEngine(world.ByteRenderer(), scripts), 100, Crashing(), group_size=1)
    figures = counts(groups)
    assert figures["failure/InfraError"] >= 3
    assert 0.94 <= figures["useful_token_fraction"] < 1.0


def test_the_same_seed_gives_the_same_rollout_in_the_same_order(world: SimpleNamespace) -> None:
    engines = [world.KeyedEngine(), world.KeyedEngine()]
    first, second = (roll(world, e, 10, concurrency=5) for e in engines)
    bare = [
        [{k: v for k, v in encode(t).items() if k != "timings"} for g in groups for t in g.trajectories]
        for groups in (first, second)
    ]
    assert bare[0] == bare[1] and engines[0].order == engines[1].order and engines[0].peak == 5


def test_a_slow_verifier_does_not_change_what_the_engine_sees(world: SimpleNamespace) -> None:
    class Slow:
        exact = world.Exact()

        async def judge(self, trajectory: Trajectory) -> Verdict:
            await asyncio.sleep(0.001 * (hash(trajectory.id) % 5))
            return await self.exact.judge(trajectory)

    engines = [world.KeyedEngine(), world.KeyedEngine()]
    roll(world, engines[0], 10, concurrency=5)
    roll(world, engines[1], 10, concurrency=5, environment=world.Toy(judge_with=Slow()))
    assert engines[0].order == engines[1].order


def test_events_and_progress(world: SimpleNamespace) -> None:
    events: list[dict[str, Any]] = []
    seen: list[int] = []
    progress = SimpleNamespace(update=lambda step, **figures: seen.append(step))
    groups = roll(world, world.KeyedEngine(), 3, events=lambda **e: events.append(e), progress=progress)
    assert sorted(seen) == [1, 2, 3]
    assert events[-1]["kind"] == "rollout" and events[-1]["attempts"] == 24 and events[-1]["outcome/finished"] == 24
    assert counts(groups)["useful_token_fraction"] == 1.0


def test_a_few_bugs_end_the_run_and_are_named(world: SimpleNamespace) -> None:
    class Buggy:
        def __init__(self, tasks: set[int]) -> None:
            self.tasks = tasks

        async def judge(self, trajectory: Trajectory) -> Verdict:
            if trajectory.task.answer in self.tasks:
                raise KeyError("column")
            return Verdict(status="ok", reward=1.0)

    (group,) = [g for g in roll(world, world.KeyedEngine(), 4, world.Toy(judge_with=Buggy({2})), group_size=1) if not g.trained]
    assert group.task.answer == 2, "one is left out and the run goes on"
    with pytest.raises(InvalidRun, match=r"3 attempts .* verifier Buggy of toy/say on toy/say/1#0.0 raised KeyError: 'column'"):
        roll(world, world.KeyedEngine(), 4, world.Toy(judge_with=Buggy({1, 2, 3})), group_size=1)


def test_tasks_whose_prompts_do_not_fit_are_left_out_named_and_counted(world: SimpleNamespace) -> None:
    env = world.Toy()
    engine = world.KeyedEngine()
    engine.max_context = len(engine.renderer.prompt(env.task(9).prompt)) + 1  # a number of two digits is too long
    events: list[dict[str, Any]] = []
    longest_first = [(env.task(n), env, 0) for n in reversed(range(40))]  # many are left out before any is attempted
    made = rollout(longest_first, engine, group_size=8, seed=0, sampling=Sampling(), events=lambda **e: events.append(e))
    groups = asyncio.run(made)
    assert [bool(g.trained) for g in groups] == [n < 10 for n in reversed(range(40))]
    assert counts(groups)["failure/NoRoom"] == counts(groups)["outcome/infra_error"] == 240 and counts(groups)["retries"] == 0
    said = [e["what"] for e in events if e["kind"] == "failure"]
    assert len(said) == 240 and any("toy/say/10#0.0" in x and "engine.max_context" in x for x in said)
    engine.max_context = 5
    with pytest.raises(UsageError, match=r"none of 3 tasks could be attempted; the first: the prompt of toy/say/0#0\.0"):
        roll(world, engine, 3)


def test_stale_weights_end_the_run_and_name_the_engine(world: SimpleNamespace) -> None:
    roll(world, world.KeyedEngine(), 2, expected=(3, "w3"))
    with pytest.raises(
        InvalidRun, match=r"engine KeyedEngine sampled toy/say/0#0\.0 .* version \[3\], but the policy is at version 4"
    ):
        roll(world, world.KeyedEngine(), 2, expected=(4, "w4"))
    with pytest.raises(InvalidRun, match="did not arrive"):
        roll(world, world.KeyedEngine(), 2, expected=(3, "other"))


def test_a_rollout_in_which_nothing_works_gives_up_early(world: SimpleNamespace) -> None:
    engine = world.KeyedEngine(fail=world.sometimes(1.0))
    with pytest.raises(InvalidRun, match=r"first 16 tries .* the sandbox crashed"):
        roll(world, engine, 100, concurrency=4)
    assert sum(engine.calls.values()) < 40


def test_an_error_that_is_the_users_cancels_the_rest(world: SimpleNamespace) -> None:
    class Wrong:
        async def judge(self, trajectory: Trajectory) -> Verdict:
            raise UsageError("reward.py raised")

    engine = world.KeyedEngine(fail=lambda r, n: asyncio.sleep(60) if r.key.attempt else None)
    with pytest.raises(UsageError, match=r"reward\.py"):
        roll(world, engine, 1, world.Toy(judge_with=Wrong()), group_size=3)
    assert len(engine.released) == 3

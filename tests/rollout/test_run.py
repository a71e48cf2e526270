"""One attempt: what is sampled stays as sampled, budgets end it, our failures are no rewards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from posttrain.envs._base import Environment
from posttrain.errors import InfraError, UsageError, WorkerLost
from posttrain.rollout.deadlines import Deadlines, within
from posttrain.rollout.run import judge, run
from posttrain.rollout.scripted import ScriptedEngine
from posttrain.types import Limits, Sampling, Task, Trajectory, Turn, Verdict


def attempt(task: Task, environment: Environment, engine: Any, **options: Any) -> Trajectory:
    settings: dict[str, Any] = {"seed": 0, "visit": 0, "attempt": 0, "sampling": Sampling(max_tokens=1000), **options}
    return asyncio.run(run(task, environment, engine, None, **settings))


def test_a_single_turn(world: SimpleNamespace) -> None:
    env = world.Toy()
    engine = world.KeyedEngine(skill=1.0)
    made = attempt(env.task(4), env, engine)
    assert made.outcome == "finished" and made.final_text == "it is 4" and made.policy_version == 3
    assert [t.role for t in made.turns] == ["prompt", "assistant"]
    assert made.turns[1].token_ids[-1] == world.STOP and made.turns[1].mask[-1]
    assert made.sampling == Sampling(max_tokens=1000) and made.timings["sample"] > 0 and made.timings["attempt"] > 0
    assert engine.released == ["0|toy/say/4|0|0"] and made.metadata["started_version"] == 3
    judged = asyncio.run(judge(made, env))
    assert judged.reward == 1.0 and judged.verdict is not None and judged.verdict.status == "ok" and judged.timings["judge"] >= 0


def test_tokens_trained_are_tokens_sampled_through_many_turns(world: SimpleNamespace) -> None:
    env = world.Counter()
    engine = ScriptedEngine(world.ByteRenderer(), [env.oracle(env.task(4))])
    asked: list[Any] = []
    real = engine.sample

    async def odd(request: Any) -> Turn:
        asked.append(request)
        turn = await real(request)
        return replace(turn, token_ids=(*turn.token_ids[:-1], 999, turn.token_ids[-1]), rollout_logprobs=(), policy_versions=())

    engine.sample = odd  # type: ignore[method-assign]
    made = attempt(env.task(4), env, engine)
    said = [t for t in made.turns if t.role == "assistant"]
    assert len(said) == 5 and all(t.token_ids[-2] == 999 for t in said), "ids no tokenizer would give are kept"
    for i, request in enumerate(asked):
        assert request.key.turn == i and request.keep
        assert request.token_ids == tuple(x for t in made.turns[: 2 * i + 1] for x in t.token_ids)
    assert made.outcome == "finished" and made.artefacts == {"total": 4}
    assert [t.reward for t in said] == [0.25] * 4 + [None]
    assert asyncio.run(judge(made, env)).reward == 1.0


def test_tool_errors_are_shown_through_the_one_table(world: SimpleNamespace) -> None:
    env = world.Counter()
    engine = ScriptedEngine(world.ByteRenderer(), [world.script(("sub", {"n": 1}), "<tool_call>{oops</tool_call>", "done")])
    made = attempt(env.task(0), env, engine)
    shown = [t.text for t in made.turns if t.role == "observation"]
    assert shown[0] == "error E_UNKNOWN_TOOL: there is no such tool: sub"
    assert shown[1].startswith("error E_FORMAT: the tool call could not be read: call 0")
    assert made.outcome == "finished" and asyncio.run(judge(made, env)).reward == 1.0


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(max_tokens=10_000, max_turns=2), "turn budget"),
        (Limits(max_tokens=60, max_turns=9), "token budget"),
        (Limits(max_tokens=10_000, max_turns=9, max_tool_calls=2), "tool-call budget"),
    ],
)
def test_budgets_truncate_and_the_verifier_still_speaks(world: SimpleNamespace, limits: Limits, why: str) -> None:
    env = world.Counter(limits=limits)
    engine = ScriptedEngine(world.ByteRenderer(), [env.oracle(env.task(5))])
    made = attempt(env.task(5), env, engine)
    assert (made.outcome, made.error) == ("truncated", why)
    assert asyncio.run(judge(made, env)).reward == 0.0


def test_an_attempt_that_outgrows_the_context_is_truncated_and_judged(world: SimpleNamespace) -> None:
    """Before an answer of the session after which nothing could be sampled, or by the turn that fills it."""
    env = world.Counter()
    whole = attempt(env.task(4), env, ScriptedEngine(world.ByteRenderer(), [env.oracle(env.task(4))]))
    sizes = [len(t.token_ids) for t in whole.turns]
    for room, kept in ((sum(sizes[:3]), 2), (sum(sizes[:3]) + 1, 4), (sum(sizes[:2]) + 1, 2)):
        engine = ScriptedEngine(world.ByteRenderer(), [env.oracle(env.task(4))])
        engine.max_context = room
        made = attempt(env.task(4), env, engine)
        assert (made.outcome, made.error, made.turns[-1].role) == ("truncated", "context", "assistant")
        assert [t.token_ids for t in made.turns] == [t.token_ids for t in whole.turns[:kept]]
        assert made.artefacts == {"total": kept // 2} and asyncio.run(judge(made, env)).reward == 0.0
    cut = world.KeyedEngine(skill=1.0)
    toy = world.Toy()
    cut.max_context = len(cut.renderer.prompt(toy.task(4).prompt)) + 3
    made = attempt(toy.task(4), toy, cut, sampling=Sampling(max_tokens=3))
    assert (made.outcome, made.error, made.num_sampled) == ("truncated", "context", 3)


def test_a_prompt_that_fills_the_context_is_no_attempt(world: SimpleNamespace) -> None:
    env = world.Toy()
    engine = world.KeyedEngine()
    engine.max_context = tokens = len(engine.renderer.prompt(env.task(4).prompt))
    made = attempt(env.task(4), env, engine)
    assert made.outcome == "infra_error" and made.metadata["failure"] == "NoRoom" and not engine.order
    assert f"the prompt of toy/say/4#0.0 has {tokens} tokens" in made.error and "raise engine.max_context" in made.error


def test_a_cut_answer_is_truncated_and_judged(world: SimpleNamespace) -> None:
    env = world.Toy()
    made = attempt(env.task(4), env, world.KeyedEngine(skill=1.0), sampling=Sampling(max_tokens=3))
    assert made.outcome == "truncated" and made.num_sampled == 3
    assert asyncio.run(judge(made, env)).reward == 0.0


def test_a_branch_goes_on_from_a_snapshot_and_does_not_train_twice(world: SimpleNamespace) -> None:
    env = world.Counter()
    task = env.task(3)
    parent = attempt(task, env, ScriptedEngine(world.ByteRenderer(), [env.oracle(task)]))
    engine = ScriptedEngine(world.ByteRenderer(), [world.script("", ("add", {"n": 2}), "done")])
    made = attempt(task, env, engine, start=(parent, 1))
    assert made.parent == (parent.id, 1)
    assert [t.token_ids for t in made.turns[:3]] == [t.token_ids for t in parent.turns[:3]]
    assert not any(m for t in made.turns[:3] for m in t.mask) and all(made.turns[3].mask)
    assert made.artefacts == {"total": 3} and asyncio.run(judge(made, env)).reward == 1.0
    toy = world.Toy()
    flat = attempt(toy.task(1), toy, world.KeyedEngine())
    with pytest.raises(UsageError, match="cannot branch"):
        attempt(toy.task(1), toy, world.KeyedEngine(), start=(flat, 1))


def test_our_failures_are_no_rewards(world: SimpleNamespace) -> None:
    env = world.Toy()
    made = attempt(env.task(1), env, world.KeyedEngine(fail=world.sometimes(1.0, lambda: WorkerLost("gone"))))
    assert made.outcome == "infra_error" and made.metadata["failure"] == "WorkerLost" and made.error == "gone"
    judged = asyncio.run(judge(made, env))
    assert judged.reward is None and not judged.trains
    stalled = world.KeyedEngine(fail=lambda request, n: asyncio.sleep(60))
    made = attempt(env.task(1), env, stalled, deadlines=Deadlines(sample=0.05))
    assert made.error == "turn 0 of toy/say/1#0.0 did not finish within 0.05 s"
    assert stalled.aborted == stalled.released == ["0|toy/say/1|0|0"]


def test_a_cancelled_attempt_frees_its_slot(world: SimpleNamespace) -> None:
    env = world.Toy()
    engine = world.KeyedEngine(fail=lambda request, n: asyncio.sleep(60))

    async def body() -> None:
        work = asyncio.ensure_future(run(env.task(1), env, engine, None, seed=0, visit=0, attempt=0, sampling=Sampling()))
        await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(body())
    assert engine.aborted == engine.released == ["0|toy/say/1|0|0"]


class Raising:
    """A verifier with whatever is wrong with it."""

    def __init__(self, what: Any) -> None:
        self.what = what

    async def judge(self, trajectory: Trajectory) -> Any:
        if isinstance(self.what, Exception):
            raise self.what
        if isinstance(self.what, Mapping):
            return Verdict(**self.what)
        await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("what", "kind", "says"),
    [
        (
            ZeroDivisionError("division"),
            "Broken",
            "verifier Raising of toy/say on toy/say/1#0.0 raised ZeroDivisionError: division",
        ),
        ({"status": "ok", "reward": float("nan")}, "Broken", "rewards must be finite"),
        (InfraError("worker gone"), "InfraError", "worker gone"),
        (TimeoutError("slow"), "InfraError", "timed out"),
        (None, "DeadlineExceeded", "did not finish within 0.05 s"),
        ({"status": "infra_error", "feedback": "reference past its deadline"}, "InfraError", "reference past its deadline"),
    ],
    ids=str,
)
def test_a_verifier_that_breaks_is_not_a_wrong_answer(world: SimpleNamespace, what: Any, kind: str, says: str) -> None:
    env = world.Toy(judge_with=Raising(what))
    made = attempt(env.task(1), env, world.KeyedEngine())
    judged = asyncio.run(judge(made, env, deadline=0.05))
    assert judged.outcome == "infra_error" and judged.reward is None and not judged.trains
    assert judged.metadata["failure"] == kind and says in judged.error
    assert judged.turns == made.turns, "what was sampled is kept"


def test_a_users_own_fault_goes_up(world: SimpleNamespace) -> None:
    env = world.Toy(judge_with=Raising(UsageError("reward.py, line 3")))
    with pytest.raises(UsageError, match="line 3"):
        asyncio.run(judge(attempt(env.task(1), env, world.KeyedEngine()), env))


def test_a_sessions_bug_is_named(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    env = world.Counter()
    engine = ScriptedEngine(world.ByteRenderer(), [world.script(("add", {}), "done")])
    made = attempt(env.task(1), env, engine)
    assert made.outcome == "infra_error" and made.metadata["failure"] == "Broken"
    assert "step of toy/counter on toy/counter/1#0.0 raised KeyError: 'n'" in made.error and "conftest.py:" in made.error


def test_every_wait_has_a_name() -> None:
    async def inner() -> None:
        raise TimeoutError("from inside")

    with pytest.raises(InfraError, match="the thing timed out: from inside"):
        asyncio.run(within("the thing", 5, inner()))

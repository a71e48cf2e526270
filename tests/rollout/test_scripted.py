"""Known answers check verifiers before a run starts, and become SFT rows."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from posttrain.engines._base import Engine
from posttrain.errors import InfraError, InvalidRun, UsageError
from posttrain.rollout.scripted import ScriptedEngine, check_environments, replay, rows_of_oracles
from posttrain.types import Response, Trajectory, Verdict


def test_it_is_an_engine(world: SimpleNamespace) -> None:
    assert isinstance(ScriptedEngine(world.ByteRenderer(), []), Engine)


def test_sound_verifiers_pass(world: SimpleNamespace) -> None:
    assert asyncio.run(check_environments([world.Toy(), world.Counter()], world.ByteRenderer())) == 2


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        (Verdict(status="wrong"), "judged its reference answer to toy/say/7 wrong with reward 0, not ok with 1"),
        (Verdict(status="ok", reward=1.0), "judged the wrong answer 'off by one' to toy/say/7 ok with reward 1, not below 1"),
        (InfraError("sympy is gone"), "failed on its reference answer to toy/say/7: sympy is gone"),
    ],
    ids=["always wrong", "always right", "broken"],
)
def test_a_broken_verifier_stops_the_run_and_is_named(world: SimpleNamespace, verdict: Verdict | Exception, says: str) -> None:
    class Fixed:
        async def judge(self, trajectory: Trajectory) -> Verdict:
            if isinstance(verdict, Exception):
                raise verdict
            return verdict

    with pytest.raises(InvalidRun) as caught:
        asyncio.run(check_environments([world.Counter(), world.Toy(judge_with=Fixed())], world.ByteRenderer()))
    assert "the run does not start: verifier Fixed of toy/say" in str(caught.value) and says in str(caught.value)


def test_rows_train_what_the_assistant_says_with_its_stop_token(world: SimpleNamespace) -> None:
    env = world.Counter()
    (row,) = asyncio.run(rows_of_oracles([env.task(2)], env, world.ByteRenderer()))
    assert [t.role for t in row.turns] == ["prompt", "assistant", "observation", "assistant", "observation", "assistant"]
    assert world.ByteRenderer().decode(row.turns[4].token_ids) == "[tool]2[assistant]", "what the session really answered"
    for turn in row.turns:
        assert set(turn.mask) == {turn.role == "assistant"}
        assert turn.role != "assistant" or turn.token_ids[-1] == world.STOP
    assert row.advantage == 1.0 and row.trains and row.policy_version is None
    played = asyncio.run(replay(env, env.task(2), env.oracle(env.task(2)), world.ByteRenderer()))
    assert row.token_ids == played.token_ids, "a row is what an attempt would have read and said"


def test_replaying_keeps_to_no_budget(world: SimpleNamespace) -> None:
    env = world.Toy()
    long = Response.of("x" * 500 + " 7")
    assert asyncio.run(replay(env, env.task(7), long, world.ByteRenderer())).reward == 1.0


def test_no_oracle_no_rows(world: SimpleNamespace) -> None:
    with pytest.raises(UsageError, match="no reference answers"):
        asyncio.run(rows_of_oracles([world.Toy().task(2)], world.Toy(), world.ByteRenderer()))

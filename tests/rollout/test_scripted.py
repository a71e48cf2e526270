"""Known answers check verifiers before a run starts, and become SFT rows."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from posttrain.engines._base import Engine
from posttrain.errors import InfraError, InvalidRun, ToolError, UsageError
from posttrain.rollout.run import Broken
from posttrain.rollout.scripted import ScriptedEngine, check_environments, converse, replay, rows_of_oracles, worked
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


def test_a_tool_error_is_shown_as_to_a_policy(world: SimpleNamespace) -> None:
    """In a row, in a worked example and in an attempt: the same text under the same call."""
    env, task = world.Counter(), world.Counter().task(1)
    said = world.script(("lose", {}), ("add", {"n": 1}), "done")
    messages, tools = asyncio.run(worked(env, task, said))
    assert [m.role for m in messages] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert (messages[1].name, messages[1].content) == ("lose", str(ToolError("E_UNKNOWN_TOOL", "lose")))
    assert [t.name for t in tools] == ["add"]
    attempt = asyncio.run(replay(env, task, said, world.ByteRenderer()))
    assert attempt.turns[2].text == messages[1].content and attempt.reward == 1.0


def test_a_session_that_breaks_is_named_and_one_that_is_done_hears_no_more(world: SimpleNamespace) -> None:
    env, task = world.Counter(), world.Counter().task(1)
    with pytest.raises(Broken, match=r"step of toy/counter .* raised KeyError"):
        asyncio.run(worked(env, task, world.script(("add", {}), "done")))
    assert len(asyncio.run(worked(env, task, world.script("done", ("add", {"n": 1}))))[0]) == 1

    async def alone() -> int:
        return len([x async for x in converse(world.Toy(), world.Toy().task(1), None, world.script("a", "b").turns)])

    assert asyncio.run(alone()) == 1, "without a session there is one turn"


def test_replaying_keeps_to_no_budget(world: SimpleNamespace) -> None:
    env = world.Toy()
    long = Response.of("x" * 500 + " 7")
    assert asyncio.run(replay(env, env.task(7), long, world.ByteRenderer())).reward == 1.0


def test_no_oracle_no_rows(world: SimpleNamespace) -> None:
    with pytest.raises(UsageError, match="no reference answers"):
        asyncio.run(rows_of_oracles([world.Toy().task(2)], world.Toy(), world.ByteRenderer()))

"""Every record comes back exactly as it was stored."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.errors import UsageError
from posttrain.store.records import decode, encode
from posttrain.types import (
    Group,
    Limits,
    Message,
    Response,
    Sampling,
    Task,
    ToolCall,
    ToolSpec,
    Trajectory,
    Turn,
    Verdict,
)

TASK = Task(
    id="a/b@1/L0/s1",
    environment="a/b",
    level=3,
    prompt=(Message(role="system", content="s"), Message(role="user", content="ünï\ud800 </script>")),
    tools=(ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {"type": "number"}}}),),
    limits=Limits(max_tokens=7, max_turns=2),
    answer={"x": [1, 2.5, None]},
    private={"rows": [[1, "a"]]},
    metadata={"size": 4},
)
FULL = Trajectory(
    task=TASK,
    visit=2,
    attempt=5,
    seed=9,
    turns=(
        Turn(role="prompt", token_ids=(1, 2, 3)),
        Turn(
            role="assistant",
            token_ids=(4, 5),
            rollout_logprobs=(-0.1234567890123456789, -1e-300),
            policy_versions=(3, 4),
            weights_hash="ab",
            text="hé",
            stop_reason="stop",
            loss_mask=(True, False),
            tool_calls=(ToolCall(name="add", arguments={"a": 1, "b": [2]}, id="0"),),
            malformed="x",
            reward=0.5,
            snapshot="s1",
            advantages=(0.1, 0.2),
            policy_logprobs=(-0.3, -math.inf),
            proximal_logprobs=(-0.1, -0.2),
            ref_logprobs=(-1.0, -2.0),
            teacher_logprobs=(0.0, 0.0),
            values=(0.25, 1 / 3),
        ),
        Turn(role="observation", token_ids=(6,)),
    ),
    outcome="truncated",
    error="e",
    sampling=Sampling(temperature=0.7, max_tokens=9),
    parent=("a#0.0", 1),
    artefacts={"state": {"n": 1}},
    verdict=Verdict(
        status="wrong",
        reward=0.25,
        parts={"format": 1.0, "value": 0.0},
        step_rewards=((1, 0, 2, 0.5),),
        evidence={"got": "4"},
        feedback="f",
        verifier="v",
    ),
    reward=0.25,
    advantage=-0.75,
    weight=0.5,
    timings={"sample": 0.1},
    retries=1,
    metadata={"k": "v"},
)


def through_json(record: object) -> object:
    return decode(json.loads(json.dumps(encode(record))))


def test_every_field_of_a_trajectory_survives() -> None:
    assert through_json(FULL) == FULL


@pytest.mark.parametrize(
    "record",
    [
        TASK,
        Group(task=TASK, trajectories=(FULL, FULL), start=("p", 2)),
        Response.of("4", "note"),
        Sampling(),
        Verdict(status="ok", reward=1.0),
    ],
    ids=lambda r: type(r).__name__,
)
def test_other_records_survive(record: object) -> None:
    assert through_json(record) == record


def test_none_and_empty_are_told_apart() -> None:
    for mask in (None, ()):
        turn = Turn(role="assistant", token_ids=(), loss_mask=mask)
        assert through_json(turn) == turn


@given(
    st.lists(st.tuples(st.integers(0, 2**31), st.floats(allow_nan=False)), max_size=8),
    st.text(),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_numbers_keep_their_bits(pairs: list[tuple[int, float]], text: str, reward: float) -> None:
    turn = Turn(
        role="assistant",
        token_ids=tuple(t for t, _ in pairs),
        rollout_logprobs=tuple(p for _, p in pairs),
        text=text,
        reward=reward,
    )
    back = through_json(turn)
    assert back == turn
    assert [p.hex() for p in back.rollout_logprobs] == [p.hex() for p in turn.rollout_logprobs]  # type: ignore[attr-defined]


def test_nan_survives() -> None:
    turn = Turn(role="assistant", token_ids=(1,), values=(math.nan,))
    assert math.isnan(through_json(turn).values[0])  # type: ignore[attr-defined]


def test_unknown_fields_kinds_and_newer_schemas_are_refused() -> None:
    with pytest.raises(UsageError, match="token_ids"):
        decode({**encode(FULL.turns[0]), "token_idss": [1]})
    with pytest.raises(UsageError, match="Trajectory"):
        decode({"record": "Trajectry"})
    with pytest.raises(UsageError, match="newer"):
        decode({**encode(FULL), "schema_version": 99})


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(TypeError, match="answer"):
        encode(Task(id="x", environment="a/b", prompt=(Message(role="user"),), answer=object()))
    with pytest.raises(TypeError, match="text keys"):
        encode(Task(id="x", environment="a/b", prompt=(Message(role="user"),), private={1: 2}))  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="no record"):
        encode(3)

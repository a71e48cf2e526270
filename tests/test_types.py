"""The records refuse what cannot be, and say what they are."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from posttrain.types import (
    Group,
    Key,
    Message,
    Response,
    Sampling,
    Segment,
    Segments,
    Status,
    Task,
    Trajectory,
    Turn,
    Verdict,
)


def task(text: str = "2+2?", **fields: Any) -> Task:
    return Task(id="sums/add@1/L0/s7", environment="sums/add", prompt=(Message(role="user", content=text),), answer="4", **fields)


def attempt(reward: float | None, status: Status = "ok", **fields: Any) -> Trajectory:
    turns = (
        Turn(role="prompt", token_ids=(5, 6)),
        Turn(role="assistant", token_ids=(7, 8, 2), text="4", policy_versions=(3, 3, 4)),
    )
    verdict = None if reward is None else Verdict(status=status, reward=reward)
    return Trajectory(task=task(), turns=turns, verdict=verdict, reward=reward, **fields)


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        task().id = "other"  # type: ignore[misc]


def test_a_task_needs_a_prompt() -> None:
    with pytest.raises(ValueError, match="empty prompt"):
        Task(id="x", environment="a/b", prompt=())
    assert task().domain == "sums"


def test_prompt_hash_ignores_spacing_and_private_fields_only() -> None:
    assert task("2+2?").prompt_hash == task(" 2+2?\n").prompt_hash == replace(task(), answer="5", seed=9).prompt_hash
    assert task("2+2?").prompt_hash != task("2+3?").prompt_hash


def test_one_task_in_eight_is_held_out_in_every_process() -> None:
    mine = [task(f"{i}+{i}?").held_out for i in range(800)]
    assert 70 <= sum(mine) <= 130
    code = (
        "from posttrain.types import *\n"
        "prompts = [(Message(role='user', content=f'{i}+{i}?'),) for i in range(800)]\n"
        "print([Task(id='x', environment='a/b', prompt=p).held_out for p in prompts])"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={"PYTHONHASHSEED": "7"})
    assert other.stdout.strip() == str(mine)


@pytest.mark.parametrize(
    "fields",
    [{"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_k": -1}, {"min_p": 1.0}, {"max_tokens": 0}],
)
def test_sampling_out_of_range(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"out of range|at least 1"):
        Sampling(**fields)


def test_the_attempt_of_a_key_is_the_same_for_all_its_turns() -> None:
    key = Key(seed=1, task_id="a", visit=2, attempt=3)
    assert key.attempt_id == replace(key, turn=5).attempt_id != replace(key, attempt=4).attempt_id


@pytest.mark.parametrize(
    "name", ["rollout_logprobs", "policy_versions", "advantages", "policy_logprobs", "ref_logprobs", "values"]
)
def test_a_turn_keeps_one_figure_a_token_or_none(name: str) -> None:
    Turn(role="assistant", token_ids=(1, 2), **{name: (0, 0)})
    with pytest.raises(ValueError, match=f"2 tokens but 1 {name}"):
        Turn(role="assistant", token_ids=(1, 2), **{name: (0,)})


def test_the_mask_of_a_turn() -> None:
    assert Turn(role="assistant", token_ids=(1, 2)).mask == (True, True)
    assert Turn(role="observation", token_ids=(1, 2)).mask == (False, False)
    assert Turn(role="assistant", token_ids=(1, 2), loss_mask=(False, True)).mask == (False, True)
    with pytest.raises(ValueError, match="loss_mask of 1"):
        Turn(role="assistant", token_ids=(1, 2), loss_mask=(True,))


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_rewards_are_finite(reward: float) -> None:
    for make in (
        lambda: Verdict(status="ok", reward=reward),
        lambda: Turn(role="assistant", token_ids=(), reward=reward),
        lambda: Trajectory(task=task(), turns=(), reward=reward),
    ):
        with pytest.raises(ValueError, match="finite"):
            make()


def test_views_of_a_trajectory() -> None:
    one = attempt(1.0, visit=2, attempt=5)
    assert one.id == "sums/add@1/L0/s7#2.5"
    assert (one.token_ids, one.num_sampled, one.final_text, one.policy_version) == ((5, 6, 7, 8, 2), 3, "4", 3)
    assert Trajectory(task=task(), turns=()).policy_version is None
    assert Trajectory(task=task(), turns=()).final_text == ""


def test_infrastructure_failures_never_train() -> None:
    assert attempt(1.0).trains and attempt(0.0, "malformed").trains and attempt(None).trains
    assert not attempt(0.0, "infra_error").trains and not attempt(0.0, "unverifiable").trains
    assert not attempt(1.0, outcome="infra_error").trains


def test_a_group_counts_those_that_train() -> None:
    group = Group(task=task(), trajectories=(attempt(1.0), attempt(0.0, "infra_error"), attempt(None), attempt(1.0)))
    assert group.rewards == (1.0, 1.0)
    assert not group.mixed
    assert replace(group, trajectories=(*group.trajectories, attempt(0.0, "wrong"))).mixed
    assert not Group(task=task(), trajectories=(attempt(0.1), attempt(0.1), attempt(0.1))).mixed


def test_a_response_of_one_turn() -> None:
    assert Response.of("4", note="near").turns == (Message(role="assistant", content="4"),)


def test_segments_cover_every_token_once_and_follow_their_parents() -> None:
    tree = Segments((Segment(0, 4), Segment(4, 6, 0), Segment(6, 9, 1), Segment(9, 10, 0)))
    assert tree.ancestors(2) == [tree.items[0], tree.items[1]]
    assert tree.ancestors(0) == []
    for bad in (
        (Segment(1, 2),),
        (Segment(0, 2), Segment(3, 4)),
        (Segment(0, 0),),
        (Segment(0, 2, 0),),
        (Segment(0, 2), Segment(2, 3, 1)),
    ):
        with pytest.raises(ValueError, match="segment"):
            Segments(bad)

"""Policy and native engine on one module: on-policy ratios are 1, syncs cannot be dropped (guarantees A1, A2, A3, A6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from posttrain.engines._base import Request
from posttrain.engines.native import Native
from posttrain.errors import InvalidRun
from posttrain.losses.clipped import Clipped
from posttrain.losses.cross_entropy import CrossEntropy
from posttrain.train.policy import OpenPolicy
from posttrain.train.publish import publish
from posttrain.types import Key, Message, Sampling, Task, Trajectory, Turn

Open = Callable[..., OpenPolicy]


async def attempts(
    engine: Any, sampling: Sampling, step: int, *, turns: int = 1, groups: int = 3, size: int = 4
) -> list[Trajectory]:
    """Groups sampled by the engine; every member of odd number takes ``turns`` turns with an observation in between."""

    async def one(g: int, i: int) -> Trajectory:
        task = Task(id=f"task{g}", environment="tests/rows", prompt=(Message(role="user", content=f"question {g}"),))
        parts = [Turn(role="prompt", token_ids=tuple(range(10 + g, 30 + 2 * g)))]
        for t in range(turns if i % 2 else 1):
            if t:
                parts.append(Turn(role="observation", token_ids=(7, 8, 9 + t)))
            ids = tuple(token for part in parts for token in part.token_ids)
            key = Key(seed=1, task_id=task.id, visit=step, attempt=i, turn=t)
            parts.append(await engine.sample(Request(key=key, token_ids=ids, sampling=sampling)))
        return Trajectory(
            task=task, visit=step, attempt=i, turns=tuple(parts), sampling=sampling, reward=float(i % 2), advantage=i % 2 - 0.5
        )

    return list(await asyncio.gather(*(one(g, i) for g in range(groups) for i in range(size))))


def run(policy: OpenPolicy, work: Callable[[Any], Any], **options: Any) -> Any:
    async def inside() -> Any:
        async with Native(precision=policy.options.precision, max_context=256, **options).open(policy.module, None) as engine:
            await publish(policy, engine)
            return await work(engine)

    return asyncio.run(inside())


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=12),
        Sampling(max_tokens=12, temperature=0.6, top_p=0.9),
        Sampling(max_tokens=12, temperature=1.3, top_k=20),
        Sampling(max_tokens=12, min_p=0.1),
        Sampling(max_tokens=6, temperature=0.0),
    ],
    ids=lambda s: f"{s.temperature}-{s.top_p}-{s.top_k}-{s.min_p}",
)
@pytest.mark.parametrize("budget,share_prefix", [(10_000, True), (10_000, False), (100, True)])
def test_on_policy_ratios_are_one(open_policy: Open, sampling: Sampling, budget: int, share_prefix: bool) -> None:
    """lr = 0, 5 steps, in exact: mean abs difference <= 1e-5, max <= 1e-4, under every sampling distribution and packing."""
    policy = open_policy(lr=0.0, tokens_per_batch=budget, share_prefix=share_prefix, max_logprob_gap=1e-5)
    with torch.no_grad():
        policy.module.model.norm.weight.mul_(4.0)  # distributions as sharp as a trained model's

    async def work(engine: Any) -> list[dict[str, float]]:
        figures = []
        for step in range(5):
            figures.append(policy.step(await attempts(engine, sampling, step, turns=3), Clipped()).metrics)
            await publish(policy, engine)
        return figures

    for figures in run(policy, work):
        assert figures["logprob_gap"] <= 1e-5 and figures["logprob_gap_max"] <= 1e-4 and abs(figures["logprob_kl"]) <= 1e-8
        assert figures["ratio_min"] == pytest.approx(1, abs=1e-4) and figures["ratio_max"] == pytest.approx(1, abs=1e-4)
        assert figures["clipped_high"] == figures["clipped_low"] == 0


def test_fast_stays_within_its_budget(open_policy: Open) -> None:
    policy = open_policy(dtype=torch.bfloat16, lr=0.0, max_logprob_gap=0.0)

    async def work(engine: Any) -> dict[str, float]:
        return policy.step(await attempts(engine, Sampling(max_tokens=12), 0, turns=3), Clipped()).metrics

    figures = run(policy, work)
    assert 0 < figures["logprob_gap"] < 0.05 and figures["logprob_kl"] < 0.01


def test_tokens_trained_are_tokens_sampled(open_policy: Open) -> None:
    policy = open_policy(lr=0.0)

    async def work(engine: Any) -> None:
        rows = await attempts(engine, Sampling(max_tokens=8), 0, turns=3)
        packed = policy._pack(rows)
        for batch, members in zip(packed.batches, packed.rows, strict=True):
            for r, member in enumerate(members):
                sampled = [token for turn in rows[member].turns if turn.role == "assistant" for token in turn.token_ids]
                assert batch.target_ids_N[batch.row_N == r].tolist() == sampled

    run(policy, work)


def test_learning_through_the_engine_moves_the_rewarded_token(open_policy: Open) -> None:
    """The whole loop: sample, reward tokens below 100, step, publish; the reward rises."""
    policy = open_policy(lr=3e-3)

    async def work(engine: Any) -> list[float]:
        shares = []
        for step in range(12):
            rows = await attempts(engine, Sampling(max_tokens=4), step, size=8)
            rewarded = [reward(t) for t in rows]
            mean = sum(rewarded) / len(rewarded)
            shares.append(mean)
            policy.step([give(t, r, r - mean) for t, r in zip(rows, rewarded, strict=True)], Clipped())
            await publish(policy, engine)
        return shares

    shares = run(policy, work)
    assert sum(shares[-3:]) / 3 > sum(shares[:3]) / 3 + 0.3


def reward(t: Trajectory) -> float:
    return sum(token < 100 for token in t.turns[1].token_ids) / len(t.turns[1].token_ids)


def give(t: Trajectory, value: float, advantage: float) -> Trajectory:
    from dataclasses import replace

    return replace(t, reward=value, advantage=advantage or 1e-9)


def test_a_dropped_sync_stops_the_run(open_policy: Open) -> None:
    policy = open_policy(lr=1e-3)

    async def work(engine: Any) -> None:
        policy.step(await attempts(engine, Sampling(max_tokens=4), 0), Clipped())
        policy.step(await attempts(engine, Sampling(max_tokens=4), 1), Clipped())

    with pytest.raises(InvalidRun, match=r"sync was dropped; call engine\.update"):
        run(policy, work)


class Deaf:
    """An engine that drops what it is sent."""

    policy_version, weights_hash = 0, "old"

    async def update(self, weights: Any, policy_version: int, content_hash: str) -> None:
        self.got = weights


def test_an_engine_that_does_not_echo_is_named(open_policy: Open, make_rows: Callable[..., Sequence[Trajectory]]) -> None:
    policy = open_policy()
    policy.step(make_rows(), CrossEntropy())
    engine = Deaf()
    with pytest.raises(InvalidRun, match=r"Deaf was sent version 1.*version 0"):
        asyncio.run(publish(policy, engine))  # type: ignore[arg-type]
    assert engine.got.keys() == policy.weights().keys()  # it shares no module, so the weights went along

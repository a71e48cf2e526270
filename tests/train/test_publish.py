"""Policy and native engine on one module: on-policy ratios are 1, syncs cannot be dropped (guarantees A1, A2, A3, A4, A6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.engines._base import Request
from posttrain.engines.native import Native
from posttrain.envs._base import Environment, Session
from posttrain.errors import InvalidRun
from posttrain.losses.clipped import Clipped
from posttrain.losses.cross_entropy import CrossEntropy
from posttrain.models.load import load_renderer
from posttrain.render import Renderer
from posttrain.rollout.run import run as attempt
from posttrain.train.policy import OpenPolicy
from posttrain.train.publish import publish
from posttrain.types import Key, Limits, Message, Observation, Sampling, Task, ToolSpec, Trajectory, Turn

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


def run(policy: OpenPolicy, work: Callable[[Any], Any], renderer: Renderer | None = None) -> Any:
    async def inside() -> Any:
        async with Native(precision=policy.options.precision, max_context=1024).open(policy.module, renderer) as engine:
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


class Asking(Session):
    """Answers every turn, whatever it says."""

    def tools(self) -> tuple[ToolSpec, ...]:
        return (ToolSpec(name="look"),)

    async def step(self, turn: Turn) -> Observation:
        return Observation(messages=(Message(role="tool", content=f"seen {len(turn.text)} characters"),))


@dataclass(frozen=True)
class Talk(Environment):
    """Four turns with a tool's answer between them."""

    @property
    def name(self) -> str:
        return "tests/talk"

    @property
    def verifier(self) -> Any:
        raise NotImplementedError

    def tasks(self) -> Iterable[Task]:
        return ()

    async def start(self, task: Task, sandbox: Any) -> Session:
        return Asking()


def test_ids_that_no_tokenizer_gives_survive_three_tool_turns(open_policy: Open, tiny_model: Path) -> None:
    """Guarantee A3, from the engine through driver and packer: a random model samples what its tokenizer would not write."""
    policy, renderer = open_policy(lr=0.0, max_logprob_gap=1e-5), load_renderer(tiny_model)
    limits = Limits(max_tokens=400, max_turns=4)
    task = Task(id="talk", environment="tests/talk", prompt=(Message(role="user", content="Look around."),), limits=limits)
    drawn: dict[tuple[int, int], tuple[int, ...]] = {}

    async def work(engine: Any) -> list[Trajectory]:
        sample = engine.sample

        async def watched(request: Request) -> Turn:
            turn: Turn = await sample(request)
            drawn[request.key.attempt, request.key.turn] = turn.token_ids
            return turn

        engine.sample = watched
        sampling = Sampling(max_tokens=100)
        return [await attempt(task, Talk(), engine, None, seed=0, visit=0, attempt=i, sampling=sampling) for i in range(6)]

    renderer.stop_ids = tuple(range(0, 512, 16))  # a random model seldom stops by itself; so all turns are taken
    rows = [t for t in run(policy, work, renderer) if sum(u.role == "assistant" for u in t.turns) == 4]
    assert rows, "some attempts took all four turns"
    packed = policy._pack([replace(t, advantage=1.0) for t in rows])
    odd = 0
    for row in rows:
        said = [u for u in row.turns if u.role == "assistant"]
        assert [u.token_ids for u in said] == [drawn[row.attempt, i] for i in range(4)]
        odd += sum(renderer.encode(renderer.decode(u.token_ids[:-1])) != u.token_ids[:-1] for u in said)
    assert odd > 4, "ids that are not what their text is tokenised to"
    for batch, members in zip(packed.batches, packed.rows, strict=True):
        for r, member in enumerate(members):
            sampled = [token for turn in rows[member].turns if turn.role == "assistant" for token in turn.token_ids]
            assert batch.target_ids_N[batch.row_N == r].tolist() == sampled
    figures = policy.step([replace(t, reward=1.0, advantage=1.0) for t in rows], Clipped()).metrics
    assert figures["logprob_gap_max"] <= 1e-4


@pytest.mark.parametrize("pad_is_eos", [False, True])
def test_overfitting_one_sample_makes_the_model_stop(open_policy: Open, tiny_model: Path, pad_is_eos: bool) -> None:
    """Guarantee A4: the stop token trains, also where the tokenizer pads with it."""
    renderer = load_renderer(tiny_model)
    if pad_is_eos:
        renderer.tokenizer.pad_token = renderer.tokenizer.eos_token
        renderer = Renderer(renderer.tokenizer)
    asked = Message(role="user", content="What is 12 + 34?")
    turns = renderer.row((asked, Message(role="assistant", content="The answer is 46.")))
    assert turns[1].token_ids[-1] in renderer.stop_ids and turns[1].mask[-1]
    row = Trajectory(task=Task(id="one", environment="tests/rows", prompt=(asked,)), turns=turns, advantage=1.0)
    policy = open_policy(lr=3e-3)

    async def work(engine: Any) -> tuple[Turn, Turn]:
        request = Request(
            key=Key(seed=0, task_id="one"),
            token_ids=renderer.prompt((asked,)),
            sampling=Sampling(temperature=0.0, max_tokens=60),
            stop_ids=renderer.stop_ids,
        )
        before = await engine.sample(request)
        for _ in range(30):
            policy.step([row], CrossEntropy())
        await publish(policy, engine)
        return before, await engine.sample(request)

    before, after = run(policy, work, renderer)
    assert before.stop_reason == "length"
    assert after.stop_reason == "stop" and after.token_ids == turns[1].token_ids


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

"""Trajectories and open policies over the tiny model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.train.policy import OpenPolicy, Policy
from posttrain.types import Message, Sampling, Task, Trajectory, Turn

VOCABULARY = 500


def build_rows(
    seed: int = 0, groups: int = 4, size: int = 4, *, turns: int = 1, sampled: bool = True, sampling: Sampling | None = None
) -> list[Trajectory]:
    """Groups of attempts at random tokens that share their prompt; the second of each has ``turns`` turns."""
    draw = random.Random(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw.randrange(VOCABULARY) for _ in range(draw.randint(low, high)))

    def assistant() -> Turn:
        tokens = ids(1, 12)
        given: dict[str, Any] = {}
        if sampled:
            given = {"rollout_logprobs": tuple(-draw.random() * 8 for _ in tokens), "policy_versions": (0,) * len(tokens)}
        return Turn(role="assistant", token_ids=tokens, **given)

    out = []
    for g in range(groups):
        task = Task(id=f"task{g}", environment="tests/rows", prompt=(Message(role="user", content=f"question {g}"),))
        prompt = Turn(role="prompt", token_ids=ids(5, 25))
        for i in range(size):
            parts = [prompt, assistant()]
            for _ in range(turns - 1 if i == 1 else 0):
                parts += [Turn(role="observation", token_ids=ids(2, 6)), assistant()]
            reward = float(i % 2)
            out.append(
                Trajectory(
                    task=task, attempt=i, turns=tuple(parts), reward=reward, advantage=reward - 0.5 or 1.0, sampling=sampling
                )
            )
    return out


def widen(module: torch.nn.Module) -> None:
    """transformers' norms compute in float32 whatever the module's type, which would hide what lies below 1e-8."""
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                wide = torch.nn.RMSNorm(child.weight.shape, eps=child.variance_epsilon, dtype=torch.float64)
                wide.weight = child.weight
                setattr(part, name, wide)


def load_policy(path: Path, *, dtype: torch.dtype = torch.float32, **options: Any) -> OpenPolicy:
    """The tiny model, opened for training."""
    from transformers import AutoModelForCausalLM

    module = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    if dtype == torch.float64:
        widen(module)
    precision = "fast" if dtype == torch.bfloat16 else "exact"
    return Policy(**{"precision": precision, "max_logprob_gap": 1e9, **options}).open(module)


def take_gradients(policy: OpenPolicy, trajectories: Sequence[Trajectory], loss: Any) -> dict[str, torch.Tensor]:
    """The gradients that a step would use, without the update."""
    found: dict[str, torch.Tensor] = {}
    update = policy.optimiser.update
    policy.optimiser.update = lambda lr, scale=1.0: found.update({k: v.clone() for k, v in policy.optimiser.grads().items()})  # type: ignore[method-assign]
    try:
        policy.step(trajectories, loss)
    finally:
        policy.optimiser.update = update  # type: ignore[method-assign]
        policy.version -= 1
    return found


@pytest.fixture
def make_rows() -> Callable[..., list[Trajectory]]:
    return build_rows


@pytest.fixture
def open_policy(tiny_model: Path) -> Callable[..., OpenPolicy]:
    return lambda **options: load_policy(tiny_model, **options)


@pytest.fixture
def widened() -> Callable[[torch.nn.Module], None]:
    return widen


@pytest.fixture
def gradients() -> Callable[..., dict[str, torch.Tensor]]:
    return take_gradients

"""Guarantee A18: every policy-gradient loss with every advantage makes a bandit-sized policy find the best arm."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from posttrain import plugins
from posttrain.losses._base import Outputs
from posttrain.train.pack import pack
from posttrain.types import Group, Message, Task, Trajectory, Turn

LOSSES = [name for name in plugins.names("losses") if plugins.build("losses", name).reads_rollout]
REWARDS = torch.tensor([[0.0, 0.2, 1.0, 0.1, 0.3], [1.0, 0.9, 0.0, 0.0, 0.5]])  # two contexts, five arms


@pytest.mark.parametrize("advantage", plugins.names("advantages"))
@pytest.mark.parametrize("name", LOSSES)
def test_reaches_the_optimum(name: str, advantage: str) -> None:
    loss, baseline = plugins.build("losses", name), plugins.build("advantages", advantage)
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(2, 5, requires_grad=True)
    adam = torch.optim.Adam([logits], lr=0.1)
    tasks = [Task(id=str(c), environment="tests/bandit", prompt=(Message(role="user", content=str(c)),)) for c in range(2)]
    for _ in range(150):
        log_p = logits.detach().log_softmax(-1)
        groups = []
        for c, task in enumerate(tasks):
            arms = torch.multinomial(log_p[c].exp(), 8, replacement=True, generator=generator).tolist()
            groups.append(Group(task=task, trajectories=tuple(attempt(task, i, c, arm, log_p) for i, arm in enumerate(arms))))
        packed = pack([t for g in baseline(groups) for t in g.trajectories], max_tokens=1000)
        for batch in packed.batches:
            contexts = batch.token_ids_T[batch.row_index_N]
            logprobs = logits.log_softmax(-1)[contexts, batch.target_ids_N - 10]
            value, _ = loss(
                replace(batch, ref_logprobs_N=torch.full_like(logprobs.detach(), -1.609)), Outputs(policy_logprobs_N=logprobs)
            )
            adam.zero_grad()
            (value / loss.weight(batch)).backward()
            adam.step()
    assert logits.argmax(-1).tolist() == [2, 0]
    assert float((logits.detach().softmax(-1) * REWARDS).sum(-1).min()) > 0.93


def attempt(task: Task, number: int, context: int, arm: int, log_p: torch.Tensor) -> Trajectory:
    """The context is the prompt's only token, arm k is token 10 + k."""
    turns = (
        Turn(role="prompt", token_ids=(context,)),
        Turn(role="assistant", token_ids=(10 + arm,), rollout_logprobs=(float(log_p[context, arm]),), policy_versions=(0,)),
    )
    return Trajectory(task=task, attempt=number, turns=turns, reward=float(REWARDS[context, arm]))


def test_the_list_is_not_empty() -> None:
    assert "clipped" in LOSSES and len(plugins.names("advantages")) >= 3

"""Guarantee A18: every policy-gradient loss with every advantage makes a small policy find what is best.

A bandit of two contexts, and a decision process of two turns whose tempting first step is a trap, checked against brute force.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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


# A decision process of two turns: the first action says which state comes next. Action 0 pays at once and leads nowhere.
FIRST = torch.tensor([0.3, 0.0])
SECOND = torch.tensor([[0.0, 0.1], [0.2, 1.0]])  # by first action, then by second
PATHS = list(itertools.product(range(2), range(2)))
RETURNS = {(a, b): float(FIRST[a] + SECOND[a, b]) for a, b in PATHS}
WALK = Task(id="walk", environment="tests/walk", prompt=(Message(role="user", content="walk"),))


def walk(
    number: int, path: tuple[int, int], log_p: torch.Tensor, credit: Sequence[float] = (), reward: float = 0.0
) -> Trajectory:
    """State s is token s, action k token 10 + k; the session's answer is one token, the next state. ``credit`` is by turn."""
    first, second = path
    turns = [Turn(role="prompt", token_ids=(0,))]
    for t, (state, action) in enumerate(((0, first), (1 + first, second))):
        if t:
            turns.append(Turn(role="observation", token_ids=(state,)))
        given: dict[str, Any] = {"advantages": (credit[t],)} if credit else {}
        logprob = (float(log_p[state, action]),)
        turns.append(Turn(role="assistant", token_ids=(10 + action,), rollout_logprobs=logprob, policy_versions=(0,), **given))
    return Trajectory(task=WALK, attempt=number, turns=tuple(turns), reward=reward)


def walk_loss(loss: Any, rows: Sequence[Trajectory], logits: torch.Tensor) -> torch.Tensor:
    """The loss over packed rows under the tabular policy [3 states, 2 actions], by the trainer's denominator."""
    (batch,) = pack(rows, max_tokens=10_000).batches
    logprobs = logits.log_softmax(-1)[batch.token_ids_T[batch.row_index_N], batch.target_ids_N - 10]
    reference = replace(batch, ref_logprobs_N=logprobs.detach())
    value, _ = loss(reference, Outputs(policy_logprobs_N=logprobs))
    return torch.as_tensor(value / loss.weight(batch))


def expected_return(logits: torch.Tensor) -> torch.Tensor:
    """By enumeration of all paths."""
    p = logits.softmax(-1)
    return torch.stack([p[0, a] * p[1 + a, b] * RETURNS[a, b] for a, b in PATHS]).sum()


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(3, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("name", LOSSES)
def test_credit_by_turn_gives_the_gradient_of_the_expected_return(name: str, logits: torch.Tensor) -> None:
    """Each turn's own advantage, Q - V by brute force; rows weighted by their probability. Two trained tokens a row."""
    p, log_p = logits.detach().softmax(-1), logits.detach().log_softmax(-1)
    rows = []
    for number, (a, b) in enumerate(PATHS):
        after = [FIRST[s] + (p[1 + s] * SECOND[s]).sum() for s in range(2)]
        start = p[0, 0] * after[0] + p[0, 1] * after[1]
        credit = (float(after[a] - start), float(SECOND[a, b] - (p[1 + a] * SECOND[a]).sum()))
        row = walk(number, (a, b), log_p, credit)
        rows.append(replace(row, weight=float(p[0, a] * p[1 + a, b])))
    (wanted,) = torch.autograd.grad(expected_return(logits), logits)
    (got,) = torch.autograd.grad(walk_loss(plugins.build("losses", name), rows, logits), logits)
    torch.testing.assert_close(-2 * got, wanted, rtol=1e-5, atol=1e-7)  # records keep float32 columns in a batch


@pytest.mark.parametrize("advantage,share", [("group_mean", 0.5), ("leave_one_out", 1.0)])
def test_credit_by_outcome_is_unbiased_over_all_groups(advantage: str, share: float, logits: torch.Tensor) -> None:
    """All 16 groups of two: a baseline that holds the attempt's own reward shrinks the gradient to 1 - 1/n of it, no more."""
    p, log_p = logits.detach().softmax(-1), logits.detach().log_softmax(-1)
    chance = {(a, b): float(p[0, a] * p[1 + a, b]) for a, b in PATHS}
    baseline, loss = plugins.build("advantages", advantage), plugins.build("losses", "clipped")
    total = torch.zeros_like(logits)
    for pair in itertools.product(PATHS, repeat=2):
        members = tuple(walk(i, path, log_p, reward=RETURNS[path]) for i, path in enumerate(pair))
        (group,) = baseline([Group(task=WALK, trajectories=members)])
        if any(t.advantage for t in group.trajectories):
            (gradient,) = torch.autograd.grad(walk_loss(loss, group.trajectories, logits), logits)
            total -= 2 * chance[pair[0]] * chance[pair[1]] * gradient
    (wanted,) = torch.autograd.grad(expected_return(logits), logits)
    torch.testing.assert_close(total, share * wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("advantage", plugins.names("advantages"))
@pytest.mark.parametrize("name", LOSSES)
def test_two_turns_are_learnt_past_the_trap(name: str, advantage: str) -> None:
    loss, baseline = plugins.build("losses", name), plugins.build("advantages", advantage)
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(3, 2, requires_grad=True)
    adam = torch.optim.Adam([logits], lr=0.1)
    for _ in range(100):
        p, log_p = logits.detach().softmax(-1), logits.detach().log_softmax(-1)
        members = []
        for i in range(8):
            a = int(torch.multinomial(p[0], 1, generator=generator))
            b = int(torch.multinomial(p[1 + a], 1, generator=generator))
            members.append(walk(i, (a, b), log_p, reward=RETURNS[a, b]))
        (group,) = baseline([Group(task=WALK, trajectories=tuple(members))])
        if any(t.advantage for t in group.trajectories):
            adam.zero_grad()
            walk_loss(loss, group.trajectories, logits).backward()
            adam.step()
    best = max(RETURNS.values())
    assert best == RETURNS[1, 1]
    assert float(expected_return(logits.detach())) > 0.95 * best

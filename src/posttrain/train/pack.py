"""The packer: trajectories in, ``Batch`` out, within a token budget, without padding, longest first.

A prompt (or any run of turns) that several rows share is stored once. A trajectory is one row, however many of its turns
train; two trajectories with one id are parts of one, and weigh together what it would weigh whole. What is left out is
listed with its reason:

* ``infra_error``: it, or its verdict, may not train;
* ``no_advantage``: nobody assigned one;
* ``zero_advantage``: its group's advantages are all exactly 0 (equal rewards, a group of one): it would add nothing but a
  larger denominator;
* ``zero_weight``: its row weight is 0;
* ``fully_masked``: no token of it trains;
* ``too_long``: longer than the budget.

Shapes: T distinct tokens, N scored positions, R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.errors import UsageError
from posttrain.train._trees import Layout, Tree, fill, grow
from posttrain.types import Segments, Trajectory, Turn

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.losses._base import Batch

OPTIONAL = ("rollout_logprobs", "proximal_logprobs", "ref_logprobs", "teacher_logprobs", "values")
REASONS = ("infra_error", "no_advantage", "zero_advantage", "zero_weight", "fully_masked", "too_long")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """``rows[b][r]`` is the index of the trajectory that is row r of batch b; ``dropped`` holds (trajectory id, reason)."""

    batches: list[Batch]
    rows: list[list[int]]
    dropped: list[tuple[str, str]]


def pack(trajectories: Sequence[Trajectory], *, max_tokens: int, share_prefix: bool = True, judged: bool = True) -> Packed:
    """Batches of at most ``max_tokens`` distinct tokens, the fullest first; the same input gives the same batches.

    ``judged`` False is for annotation, before there are advantages: only what can never train is left out.
    Raises UsageError where the budget is not positive.
    """
    if max_tokens < 1:
        raise UsageError(f"the token budget is {max_tokens}; a batch needs at least 1 token")
    kept, dropped = _sift(trajectories, max_tokens, judged)
    groups: dict[tuple[object, ...], int] = {}
    for trajectory in trajectories:
        groups.setdefault(_group_key(trajectory), len(groups))
    sizes: dict[str, int] = {}
    for i in kept:
        sizes[trajectories[i].id] = sizes.get(trajectories[i].id, 0) + len(scored(trajectories[i]))
    bins = fill(grow(trajectories, kept, max_tokens=max_tokens, share_prefix=share_prefix), max_tokens)
    batches, rows = [], []
    for trees in bins:
        members = [row for tree in trees for row in tree.rows]
        batches.append(_batch(trajectories, trees, members, groups, sizes))
        rows.append(members)
    return Packed(batches=batches, rows=rows, dropped=dropped)


def scored(trajectory: Trajectory) -> list[tuple[int, int, int]]:
    """(place in the row, turn, token within the turn) of every token that trains; the first token has nothing to predict it."""
    at, found = 0, []
    for number, turn in enumerate(trajectory.turns):
        found += [(at + i, number, i) for i, trains in enumerate(turn.mask) if trains and at + i]
        at += len(turn.token_ids)
    return found


def _group_key(trajectory: Trajectory) -> tuple[object, ...]:
    return (trajectory.task.environment, trajectory.task.id, trajectory.visit, trajectory.parent)


def _sift(trajectories: Sequence[Trajectory], max_tokens: int, judged: bool) -> tuple[list[int], list[tuple[str, str]]]:
    moved = {_group_key(t) for t in trajectories if t.advantage or any(any(turn.advantages) for turn in t.turns)}
    kept, dropped = [], []
    for i, t in enumerate(trajectories):
        reason = ""
        if not t.trains:
            reason = "infra_error"
        elif judged and t.advantage is None and not any(turn.advantages for turn in t.turns):
            reason = "no_advantage"
        elif judged and _group_key(t) not in moved:
            reason = "zero_advantage"
        elif judged and t.weight == 0:
            reason = "zero_weight"
        elif not scored(t):
            reason = "fully_masked"
        elif len(t.token_ids) > max_tokens:
            reason = "too_long"
        if reason:
            dropped.append((t.id, reason))
        else:
            kept.append(i)
    return kept, dropped


def _batch(
    trajectories: Sequence[Trajectory],
    trees: Sequence[Tree],
    members: Sequence[int],
    groups: dict[tuple[object, ...], int],
    sizes: dict[str, int],
) -> Batch:
    """One batch: the trees' layout, and for each row where its trained tokens lie."""
    import torch

    from posttrain.losses._base import Batch

    layout = Layout()
    for tree in trees:
        layout.place(tree)
    index, targets, row_of, turn_of, advantages = [], [], [], [], []
    shares = []
    fields: dict[str, list[float]] = {name: [] for name in OPTIONAL}
    for r, member in enumerate(members):
        trajectory = trajectories[member]
        ids = trajectory.token_ids
        places = [p for start, end in layout.paths[member] for p in range(start, end)]
        found = scored(trajectory)
        index += [places[at - 1] for at, _, _ in found]
        targets += [ids[at] for at, _, _ in found]
        row_of += [r] * len(found)
        turn_of += [turn for _, turn, _ in found]
        advantages += [_advantage(trajectory, trajectory.turns[turn], i) for _, turn, i in found]
        shares.append(len(found) / sizes[trajectory.id])
        for name, values in fields.items():
            values += [_of(trajectory.turns[turn], name, i) for _, turn, i in found]
    chosen = [trajectories[m] for m in members]
    return Batch(
        token_ids_T=torch.tensor(layout.token_ids),
        position_ids_T=torch.tensor(layout.position_ids),
        segments=Segments(tuple(layout.segments)),
        row_index_N=torch.tensor(index),
        target_ids_N=torch.tensor(targets),
        row_N=torch.tensor(row_of),
        turn_N=torch.tensor(turn_of),
        loss_mask_N=torch.ones(len(index), dtype=torch.bool),
        advantages_N=torch.tensor(advantages, dtype=torch.float32),
        weights_R=torch.tensor([t.weight for t in chosen], dtype=torch.float32),
        share_R=torch.tensor(shares, dtype=torch.float32),
        pair_R=torch.tensor([groups[_group_key(t)] for t in chosen]),
        rewards_R=torch.tensor([float("nan") if t.reward is None else t.reward for t in chosen], dtype=torch.float32),
        sampling_R=tuple(t.sampling for t in chosen),
        trajectory_ids=tuple(t.id for t in chosen),
        **{f"{name}_N": _tensor(values) for name, values in fields.items()},
    )


def _advantage(trajectory: Trajectory, turn: Turn, i: int) -> float:
    """Per token where an advantage gave it per token, else the trajectory's."""
    if turn.advantages:
        return turn.advantages[i]
    return trajectory.advantage or 0.0


def _of(turn: Turn, name: str, i: int) -> float:
    """A per-token field, nan where the turn has none."""
    values = getattr(turn, name)
    return values[i] if values else float("nan")


def _tensor(values: list[float]) -> Tensor | None:
    """float32, or None where no row carries the field."""
    import torch

    tensor = torch.tensor(values, dtype=torch.float32)
    return None if bool(tensor.isnan().all()) else tensor

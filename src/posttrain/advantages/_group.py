"""What group baselines share: who counts, when rewards are equal, and how the advantages get back onto the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from posttrain.types import Group


def by_group(groups: Sequence[Group], baseline: Callable[[Sequence[float]], list[float]]) -> list[Group]:
    """``baseline`` of each group's rewards, on its trained members.

    Rewards that are all equal, and a group of one, give exactly 0.0: decided on the rewards themselves, before any
    arithmetic. The packer leaves a group whose advantages are all 0 out of batch and denominator.
    """
    return [_one(group, baseline) for group in groups]


def _one(group: Group, baseline: Callable[[Sequence[float]], list[float]]) -> Group:
    rewards = group.rewards
    values = baseline(rewards) if group.mixed else [0.0] * len(rewards)
    given = iter(values)
    members = tuple(replace(t, advantage=next(given) if t.trains and t.reward is not None else None) for t in group.trajectories)
    return replace(group, trajectories=members)

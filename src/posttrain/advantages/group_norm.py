"""GRPO's advantage (2402.03300): reward minus the group's mean, over its standard deviation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.advantages._base import Advantage
from posttrain.advantages._group import by_group
from posttrain.types import Group


@dataclass(frozen=True, kw_only=True)
class GroupNorm(Advantage):
    """(reward - mean) / (std + epsilon), std with ddof = 1: rewards [1, 0, 0, 1] give +-0.866025.

    Groups with nearly equal rewards are blown up to unit variance; ``group_mean`` does not do that.
    """

    epsilon: float = 0.0

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        """Exactly 0 for equal rewards and for a group of one."""
        return by_group(groups, self._normed)

    def _normed(self, rewards: Sequence[float]) -> list[float]:
        mean, spread = statistics.fmean(rewards), statistics.stdev(rewards) + self.epsilon
        if spread == 0.0:  # rewards that differ by less than a float can square
            return [0.0] * len(rewards)
        return [(r - mean) / spread for r in rewards]

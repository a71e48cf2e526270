"""RLOO's advantage (2402.14740): reward minus the mean of the group's other members."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.advantages._base import Advantage
from posttrain.advantages._group import by_group
from posttrain.types import Group


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut(Advantage):
    """reward - mean of the others: rewards [1, 0, 0, 1] give +-0.666667. Unbiased, for no reward is in its own baseline."""

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        """Exactly 0 for equal rewards and for a group of one."""
        return by_group(groups, _without_own)


def _without_own(rewards: Sequence[float]) -> list[float]:
    total, n = math.fsum(rewards), len(rewards)
    return [r - (total - r) / (n - 1) for r in rewards]

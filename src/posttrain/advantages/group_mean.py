"""Dr. GRPO's advantage (2503.20783): reward minus the group's mean."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.advantages._base import Advantage
from posttrain.advantages._group import by_group
from posttrain.types import Group


@dataclass(frozen=True, kw_only=True)
class GroupMean(Advantage):
    """reward - mean: rewards [1, 0, 0, 1] give +-0.5. Tasks that are easy or hard weigh less than those in between."""

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        """Exactly 0 for equal rewards and for a group of one."""
        return by_group(groups, _centred)


def _centred(rewards: Sequence[float]) -> list[float]:
    mean = statistics.fmean(rewards)
    return [r - mean for r in rewards]

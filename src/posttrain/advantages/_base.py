"""The advantage's seam: rewards in, a number on what trains out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.types import Group


@dataclass(frozen=True, kw_only=True)
class Advantage(ABC):
    """May whiten over the batch; a group baseline gives exactly 0 where rewards are equal, and to a group of one.

    Only ``group.trained`` members get an advantage; the rest keep None and stay out of batch and denominator.
    """

    @abstractmethod
    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        """The same groups with ``trajectory.advantage`` (or ``turn.advantages``) set."""

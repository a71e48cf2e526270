"""What was learnt before RLVR, seen again after each of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.losses._base import Loss
from posttrain.types import Trajectory

if TYPE_CHECKING:
    from posttrain.train.policy import OpenPolicy


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Rows that were learnt before RLVR and are seen again after each of its steps, ``num`` at a time."""

    rows: Sequence[Trajectory]
    num: int
    loss: Loss

    def at(self, step: int) -> list[Trajectory]:
        """The rows whose turn it is; the same ones in a resumed run."""
        return [self.rows[(step * self.num + i) % len(self.rows)] for i in range(min(self.num, len(self.rows)))]

    def __call__(self, policy: OpenPolicy, step: int) -> tuple[dict[str, float], list[tuple[str, str]]]:
        """One SFT step, not published: its figures, and what it left out as (trajectory id, reason)."""
        if not self.rows:
            return {}, []
        result = policy.step(self.at(step), self.loss)
        figures = {"rehearsal_loss": result.metrics["loss"], "rehearsal_grad_norm": result.metrics["grad_norm"]}
        return figures, result.dropped

"""Several losses added up: a policy gradient and a penalty, say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from posttrain.errors import UsageError
from posttrain.losses._base import Batch, Loss, Outputs
from posttrain.losses.clipped import Clipped
from posttrain.losses.ref_kl import RefKl

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SumOf(Loss):
    """The sum of ``losses``, each with its own coefficient: ``SumOf(losses=(Clipped(), RefKl(coefficient=0.02)))``.

    There is one denominator, so the members' ``aggregation`` and ``normaliser`` must be the sum's own.
    """

    losses: tuple[Loss, ...] = field(default=(Clipped(), RefKl()), metadata={"kind": "losses"})

    def __post_init__(self) -> None:
        if not self.losses:
            raise UsageError("sum_of has no losses; name at least one")
        for loss in self.losses:
            if (loss.aggregation, loss.normaliser) != (self.aggregation, self.normaliser):
                raise UsageError(
                    f"{type(loss).__name__} aggregates by {loss.aggregation} / {loss.normaliser:g}, sum_of by {self.aggregation} "
                    f"/ {self.normaliser:g}; they share one denominator, so set both alike"
                )

    @property
    def annotations(self) -> tuple[str, ...]:
        """What any member needs annotated, in order."""
        return tuple(dict.fromkeys(name for loss in self.losses for name in loss.annotations))

    @property
    def reads_rollout(self) -> bool:
        """Whether any member does."""
        return any(loss.reads_rollout for loss in self.losses)

    def prepare(self, batch: Batch) -> Batch:
        """Every member's change, one after the other."""
        for loss in self.losses:
            batch = loss.prepare(batch)
        return batch

    def __call__(self, batch: Batch, outputs: Outputs) -> tuple[Tensor, Mapping[str, float]]:
        """The summed losses and all their metrics."""
        total, metrics = self.losses[0](batch, outputs)
        metrics = dict(metrics)
        for loss in self.losses[1:]:
            value, figures = loss(batch, outputs)
            total = total + value
            for name, figure in figures.items():
                metrics[name] = metrics.get(name, 0.0) + figure
        return total, metrics

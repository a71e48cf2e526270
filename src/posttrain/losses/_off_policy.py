"""Ratios between two sets of logprobs, safe against overflow.

Shapes: N scored positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from posttrain.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.losses._base import Batch

MAX_LOG_RATIO = 20.0  # exp(20) = 5e8: far past any clip range, far from overflow


def ratio(numerator_N: Tensor, denominator_N: Tensor) -> Tensor:
    """exp(numerator - denominator) with the difference cut to +-20 (the gradient is cut with it)."""
    return (numerator_N - denominator_N.to(numerator_N.dtype)).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def truncated(numerator_N: Tensor, denominator_N: Tensor, cap: float) -> Tensor:
    """min(ratio, cap) without gradient: a truncated importance weight; ``cap`` 0 leaves it uncut."""
    weight = ratio(numerator_N.detach(), denominator_N.detach())
    return weight.clamp_max(cap) if cap else weight


def require(batch: Batch, loss: str, field: str) -> Tensor:
    """``field`` (without the N suffix) of every trained position; 0 where it is masked.

    Raises UsageError naming trajectories that lack it.
    """
    import torch

    values: Tensor | None = getattr(batch, f"{field}_N")
    if values is not None and not bool((values.isnan() & batch.loss_mask_N).any()):
        return torch.where(batch.loss_mask_N, values, 0.0)  # nan there would poison gradients: 0 * nan is nan
    named = ", ".join(batch.trajectory_ids[:3])
    sampled = field == "rollout_logprobs"
    raise UsageError(
        f"the loss {loss!r} needs {field} on every trained token, and rows such as {named} have none; "
        + ("sample the rows with the engine, or use cross_entropy" if sampled else "call policy.annotate first")
    )

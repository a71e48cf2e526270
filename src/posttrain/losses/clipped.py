"""The clipped policy gradient of PPO (1707.06347) with DAPO's asymmetric range (2503.14476).

Shapes: N scored positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.errors import UsageError
from posttrain.losses._aggregate import aggregate
from posttrain.losses._base import Batch, Loss, Outputs
from posttrain.losses._off_policy import ratio, require, truncated

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Clipped(Loss):
    """-min(r A, clip(r, 1 - eps_low, 1 + eps_high) A), per token, with r = exp(policy_logprob - old_logprob).

    The old ones are the engine's, ``rollout_logprobs``: r itself is then the full correction from the engine's distribution
    to the policy's, the clip range bounds it, and no further weight is applied, for a correction must never be applied twice.
    ``decoupled`` (2110.00641) takes ``proximal_logprobs`` instead, the policy's before this batch's first step, which costs
    one more forward; the whole is then multiplied by the truncated importance weight min(exp(proximal - rollout),
    ``importance_cap``), which has no gradient. ``importance_cap`` acts only there; it and ``dual_clip`` are off at 0.
    ``dual_clip`` c bounds the loss at c |A| where A < 0 (1912.09729).
    """

    eps_low: float = 0.2
    eps_high: float = 0.28
    dual_clip: float = 3.0
    decoupled: bool = False
    importance_cap: float = 2.0

    def __post_init__(self) -> None:
        if not (0 < self.eps_low < 1 and self.eps_high > 0):
            raise UsageError(f"clip range is ({self.eps_low}, {self.eps_high}); need 0 < eps_low < 1 and eps_high > 0")
        if self.dual_clip and self.dual_clip <= 1 + self.eps_high:
            raise UsageError(f"dual_clip is {self.dual_clip}; it must be 0 (off) or above 1 + eps_high = {1 + self.eps_high:g}")
        if self.importance_cap < 0:
            raise UsageError(f"importance_cap is {self.importance_cap}; it must be 0 (no cap) or positive")

    @property
    def annotations(self) -> tuple[str, ...]:
        """The logprobs of the policy as it is before the step, where they are the old ones."""
        return ("proximal_logprobs",) if self.decoupled else ()

    @property
    def reads_rollout(self) -> bool:
        """The ratio is to the engine's logprobs."""
        return True

    def __call__(self, batch: Batch, outputs: Outputs) -> tuple[Tensor, Mapping[str, float]]:
        """The summed surrogate; counts of positions at which each bound cut the gradient."""
        import torch

        logprobs = outputs.policy_logprobs_N
        advantages = batch.advantages_N.to(logprobs.dtype)
        old = require(batch, "clipped", "proximal_logprobs" if self.decoupled else "rollout_logprobs")
        r = ratio(logprobs, old)
        values = -torch.minimum(r * advantages, r.clamp(1 - self.eps_low, 1 + self.eps_high) * advantages)
        down = advantages < 0
        if self.dual_clip:
            values = torch.where(down, torch.minimum(values, -self.dual_clip * advantages), values)
        if self.decoupled:
            rollout = require(batch, "clipped", "rollout_logprobs")
            values = values * truncated(old.to(logprobs.dtype), rollout, self.importance_cap)
        live = batch.loss_mask_N
        counts = {
            "clipped_high": live & (advantages > 0) & (r > 1 + self.eps_high),
            "clipped_low": live & down & (r < 1 - self.eps_low),
            "clipped_dual": live & down & (r > self.dual_clip) & bool(self.dual_clip),
        }
        counts["clip_fraction"] = counts["clipped_high"] | counts["clipped_low"] | counts["clipped_dual"]
        return aggregate(values, batch, self.aggregation, self.normaliser), {k: float(v.sum()) for k, v in counts.items()}

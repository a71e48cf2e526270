"""A penalty on the KL divergence from the policy to a frozen reference, as a loss whose gradient is that of the KL.

Shapes: N scored positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from posttrain.errors import UsageError
from posttrain.losses._aggregate import aggregate
from posttrain.losses._base import Batch, Loss, Outputs
from posttrain.losses._off_policy import ratio, require

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class RefKl(Loss):
    """coefficient * KL(policy || reference), estimated on the sampled tokens.

    With d = policy_logprob - ref_logprob and w = exp(policy_logprob - rollout_logprob), 1 in value on-policy:
    ``k1`` is w d, ``k3`` is w (exp(-d) - 1 + d): both have the KL as expectation under the sampling distribution for any
    policy, so the expected gradient is the KL's own. Without w, k1 has no expected gradient at all and k3 a biased one
    (2512.21852, 2512.02556). ``k2`` is sg(w) d^2 / 2: the gradient is the KL's, the value is not. k2 has the least variance
    in the gradient, k3 in the value. The gradient is per token: what a token does to later ones' KL is not in it.
    w is cut at ``importance_cap`` (0: uncut). Alone it only pulls to the reference; add it to another loss with ``sum_of``.
    """

    coefficient: float = 0.01
    estimator: Literal["k1", "k2", "k3"] = "k2"
    importance_cap: float = 2.0

    def __post_init__(self) -> None:
        if self.estimator not in ("k1", "k2", "k3"):
            raise UsageError(f"ref_kl has no estimator {self.estimator!r}; choose k1, k2 or k3")
        if self.importance_cap < 0:
            raise UsageError(f"importance_cap is {self.importance_cap}; it must be 0 (no cap) or positive")

    @property
    def annotations(self) -> tuple[str, ...]:
        """The reference's logprobs."""
        return ("ref_logprobs",)

    def __call__(self, batch: Batch, outputs: Outputs) -> tuple[Tensor, Mapping[str, float]]:
        """The summed penalty, and the estimated KL in nats."""
        import torch

        logprobs = outputs.policy_logprobs_N
        d = logprobs - require(batch, "ref_kl", "ref_logprobs").to(logprobs.dtype)
        old = logprobs.detach() if batch.rollout_logprobs_N is None else require(batch, "ref_kl", "rollout_logprobs")
        w = ratio(logprobs, old)
        if self.importance_cap:
            w = w * (w.detach().clamp_max(self.importance_cap) / w.detach())
        if self.estimator == "k1":
            values = w * d
        elif self.estimator == "k2":
            values = w.detach() * d * d / 2
        else:
            values = w * (ratio(-d, torch.zeros_like(d)) - 1 + d)
        kl = torch.where(batch.loss_mask_N, values.detach(), 0.0).sum()
        return aggregate(self.coefficient * values, batch, self.aggregation, self.normaliser), {"ref_kl": float(kl)}

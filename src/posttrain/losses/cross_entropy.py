"""Next-token cross-entropy: supervised fine-tuning.

Shapes: N scored positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.losses._aggregate import aggregate
from posttrain.losses._base import Batch, Loss, Outputs

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Loss):
    """-logprob of every trained token, whatever its advantage; the stop token is one of them."""

    def __call__(self, batch: Batch, outputs: Outputs) -> tuple[Tensor, Mapping[str, float]]:
        """The summed cross-entropy in nats."""
        return aggregate(-outputs.policy_logprobs_N, batch, self.aggregation, self.normaliser), {}

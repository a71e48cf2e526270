"""The loss's seam, and ``Batch``, the only tensor record: the packer makes it last, losses read it.

Shapes: T distinct tokens of the packed row, N scored positions (flattened over rows), R rows (trajectories).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from posttrain.types import Sampling, Segments

if TYPE_CHECKING:
    from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean", "constant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows that may share tokens: each token is stored once, ``row_index_N`` gathers the rows.

    Position n scores ``target_ids_N[n]``, predicted by the hidden state at ``row_index_N[n]``. Only positions that some
    row may train are scored. Optional per-token fields are None when no trajectory carries them.
    """

    token_ids_T: Tensor  # int64
    position_ids_T: Tensor  # int64
    segments: Segments
    row_index_N: Tensor  # int64, into T
    target_ids_N: Tensor  # int64
    row_N: Tensor  # int64, into R
    turn_N: Tensor  # int64, the turn within its trajectory
    loss_mask_N: Tensor  # bool
    advantages_N: Tensor  # float32
    weights_R: Tensor  # float32, row weights
    pair_R: Tensor  # int64; rows of one pair (or group) share a number
    rewards_R: Tensor  # float32, nan where there is none
    rollout_logprobs_N: Tensor | None = None  # float32
    proximal_logprobs_N: Tensor | None = None
    ref_logprobs_N: Tensor | None = None
    teacher_logprobs_N: Tensor | None = None
    values_N: Tensor | None = None
    share_R: Tensor | None = None  # float32, a row's share of its trajectory's trained tokens; None: every row is whole
    sampling_R: tuple[Sampling | None, ...] = ()
    trajectory_ids: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return int(self.weights_R.shape[0])

    @property
    def num_tokens(self) -> int:
        """Tokens that run through the model."""
        return int(self.token_ids_T.shape[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What the policy computed for a batch: all that a loss can read of it."""

    policy_logprobs_N: Tensor  # float32, with gradient
    entropy_N: Tensor | None = None  # float32, without gradient; nats, in training always there


@dataclass(frozen=True, kw_only=True)
class Loss(ABC):
    """A sum over trained positions; the trainer divides by the ``weight`` summed over all micro-batches and ranks.

    So splitting or packing a batch changes nothing. ``token_mean`` (DAPO) weighs tokens alike, ``sequence_mean`` (GRPO)
    rows alike, ``constant`` (Dr. GRPO) divides every row's sum by ``normaliser`` tokens.
    """

    aggregation: Aggregation = "token_mean"
    normaliser: float = 1024.0

    @property
    def annotations(self) -> tuple[str, ...]:
        """Fields that the policy's ``annotate`` fills before the advantages; UsageError there for one that it cannot fill."""
        return ()

    @property
    def reads_rollout(self) -> bool:
        """Whether it compares with the engine's logprobs, so that samples of old weights count as stale."""
        return False

    def prepare(self, batch: Batch) -> Batch:
        """A last change to the batch before any forward."""
        return batch

    def weight(self, batch: Batch) -> float:
        """This batch's share of the denominator, known before backward."""
        from posttrain.losses._aggregate import weight

        return weight(batch, self.aggregation, self.normaliser)

    @abstractmethod
    def __call__(self, batch: Batch, outputs: Outputs) -> tuple[Tensor, Mapping[str, float]]:
        """(sum, metrics); metrics are sums over trained positions too, divided by the step's trained tokens by the trainer."""

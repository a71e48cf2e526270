"""What a step says about itself: sums over micro-batches, turned into figures at its end.

Shapes: N scored positions, R rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from posttrain.losses._base import Batch, Outputs

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.train.pack import Packed


def culprits(batch: Batch, outputs: Outputs) -> list[str]:
    """Ids of rows with a logprob or a number of their own that is not finite; all rows where none stands out."""
    odd = ~outputs.policy_logprobs_N.detach().isfinite() | ~batch.advantages_N.isfinite()
    for values in (batch.rollout_logprobs_N, batch.proximal_logprobs_N, batch.ref_logprobs_N):
        odd |= torch.zeros_like(odd) if values is None else values.isinf()
    rows = sorted({*batch.row_N[odd].tolist(), *torch.nonzero(~batch.weights_R.isfinite()).flatten().tolist()})
    return [batch.trajectory_ids[r] for r in rows] or list(batch.trajectory_ids)


class Measures:
    """Figures of one step. Means are over trained tokens; ``gap`` is over tokens of rows sampled from the present weights."""

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._loss = 0.0
        self._tokens = self._gap_tokens = 0
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._gap_sum = self._gap_max = self._kl_sum = 0.0
        self._ratios = (float("inf"), 0.0)
        self._worst: list[tuple[float, str]] = []

    @property
    def loss(self) -> float:
        """The loss so far: the sum over the step's whole denominator."""
        return self._loss / self._weight

    @property
    def gap(self) -> float:
        """Mean absolute difference between the engine's and the policy's logprobs; 0 where nothing was sampled just now."""
        return self._gap_sum / max(self._gap_tokens, 1)

    @property
    def worst(self) -> list[str]:
        """Ids of the rows with the widest gaps, widest first."""
        return [name for _, name in sorted(self._worst, reverse=True)]

    def add(self, batch: Batch, outputs: Outputs, loss: float, counts: Mapping[str, float], fresh_R: Sequence[bool]) -> None:
        """Takes in one micro-batch; ``fresh_R``: rows sampled from exactly the weights that were just run."""
        self._loss += loss
        live = batch.loss_mask_N & (batch.weights_R[batch.row_N] != 0)
        self._tokens += int(live.sum())
        for name, count in counts.items():
            self._sums[name] += count
        logprobs = outputs.policy_logprobs_N.detach()
        if outputs.entropy_N is not None:
            self._sums["entropy"] += float(outputs.entropy_N[live].double().sum())
        old = batch.rollout_logprobs_N if batch.proximal_logprobs_N is None else batch.proximal_logprobs_N
        if old is not None and bool((live & ~old.isnan()).any()):
            ratios = (logprobs - old)[live & ~old.isnan()].clamp(-20, 20).exp()
            self._ratios = (min(self._ratios[0], float(ratios.min())), max(self._ratios[1], float(ratios.max())))
        if batch.rollout_logprobs_N is not None:
            self._compare(batch, logprobs - batch.rollout_logprobs_N, live, torch.tensor(fresh_R, device=live.device))

    def _compare(self, batch: Batch, difference_N: Tensor, live: Tensor, fresh_R: Tensor) -> None:
        """Engine against policy on the same weights."""
        here = live & fresh_R[batch.row_N] & ~difference_N.isnan()
        d = difference_N[here].double()
        if not len(d):
            return
        self._gap_tokens += len(d)
        self._gap_sum += float(d.abs().sum())
        self._gap_max = max(self._gap_max, float(d.abs().max()))
        self._kl_sum += float((d.clamp(-20, 20).exp() - 1 - d).sum())  # k3 of KL(engine || policy)
        summed = torch.zeros(batch.num_rows, dtype=d.dtype, device=d.device).index_add(0, batch.row_N[here], d.abs())
        self._worst = sorted([*self._worst, *zip(summed.tolist(), batch.trajectory_ids, strict=True)], reverse=True)[:5]

    def figures(self, packed: Packed, *, seconds: float) -> dict[str, float]:
        """All figures. Absent where they say nothing: ratios and gap of rows that nobody sampled."""
        tokens = max(self._tokens, 1)
        dropped = Counter(reason for _, reason in packed.dropped)
        run = sum(b.num_tokens for b in packed.batches) if self._tokens else 0
        found = {
            "loss": self.loss if self._weight else 0.0,
            "num_tokens_trained": float(self._tokens),
            "num_tokens": float(run),
            "num_rows": float(sum(len(r) for r in packed.rows)),
            "num_batches": float(len(packed.batches)),
            "rows_dropped": float(len(packed.dropped)),
            "zero_weight_steps": float(not self._weight),
            "tokens_per_second": run / seconds,
            "seconds": seconds,
        }
        found |= {f"dropped_{reason}": float(n) for reason, n in sorted(dropped.items())}
        found |= {name: total / tokens for name, total in self._sums.items()}
        if self._ratios[0] <= self._ratios[1]:
            found |= {"ratio_min": self._ratios[0], "ratio_max": self._ratios[1]}
        if self._gap_tokens:
            kl = self._kl_sum / self._gap_tokens
            found |= {"logprob_gap": self.gap, "logprob_gap_max": self._gap_max, "logprob_kl": kl}
        return found

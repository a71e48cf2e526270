"""One packed batch through the model: logprobs of the scored positions, under each row's own sampling distribution.

Shapes: T tokens, N scored positions, R rows.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch

from posttrain.losses._base import Batch, Outputs
from posttrain.models.logprobs import backbone, head, head_options, score_positions

if TYPE_CHECKING:
    from torch import Tensor


def forward(module: Any, batch: Batch, *, entropy: bool = False) -> Outputs:
    """The backbone runs once over the packed row; the output head only where a token is scored."""
    hidden_1TD = backbone(module)(
        input_ids=batch.token_ids_T[None],
        position_ids=batch.position_ids_T[None],
        segments=batch.segments,
        use_cache=False,
    ).last_hidden_state
    logprobs_N, entropy_N = score_positions(
        hidden_1TD[0].index_select(0, batch.row_index_N),
        head(module),
        batch.target_ids_N,
        entropy=entropy,
        **_sampling(batch),
        **head_options(module),
    )
    return Outputs(policy_logprobs_N=logprobs_N, entropy_N=entropy_N)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with every tensor on ``device``."""
    held = {f.name: getattr(batch, f.name) for f in fields(batch)}
    moved: dict[str, Any] = {name: value.to(device) for name, value in held.items() if isinstance(value, torch.Tensor)}
    return replace(batch, **moved)


def _sampling(batch: Batch) -> dict[str, Any]:
    """Temperature and restrictions of each position; rows that nobody sampled, and greedy ones, are scored as the model is."""
    drawn = [s if s is not None and s.temperature > 0 else None for s in batch.sampling_R]

    def column(default: float, values: list[float]) -> Tensor | None:
        if all(v == default for v in values):
            return None
        return torch.tensor(values, device=batch.row_N.device)[batch.row_N]

    return {
        "temperature_N": column(1.0, [s.temperature if s else 1.0 for s in drawn]),
        "top_p_N": column(1.0, [s.top_p if s else 1.0 for s in drawn]),
        "top_k_N": column(0, [s.top_k if s else 0 for s in drawn]),
        "min_p_N": column(0.0, [s.min_p if s else 0.0 for s in drawn]),
    }

"""From per-token losses to one sum, and the denominator that belongs to it.

What a token counts depends on its own row alone, so a batch may be split, packed or reordered at will; what is masked
counts neither above nor below the line, so masking a row equals removing it. With two rows of 2 and 6 tokens and token
losses 1 and 0: ``token_mean`` 0.25, ``sequence_mean`` 0.5, ``constant`` with normaliser 8 0.125.

Shapes: N scored positions, R rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.losses._base import Aggregation, Batch


def aggregate(values_N: Tensor, batch: Batch, aggregation: Aggregation, normaliser: float) -> Tensor:
    """The weighted sum of ``values_N`` (a scalar, with gradient); divided by the global ``weight`` it is the step's loss."""
    import torch

    each = token_weights(batch, aggregation, normaliser).to(values_N.dtype)
    # where, not a product alone: a masked position may hold anything, and 0 * inf is nan
    return (torch.where(batch.loss_mask_N, values_N, torch.zeros_like(values_N)) * each).sum()


def token_weights(batch: Batch, aggregation: Aggregation, normaliser: float) -> Tensor:
    """What each position counts in the sum (float32, N); 0 where it is masked."""
    each = batch.weights_R[batch.row_N] * batch.loss_mask_N
    if aggregation == "sequence_mean":
        return each * (_shares(batch) / _lengths(batch).clamp_min(1.0))[batch.row_N]
    if aggregation == "constant":
        return each / normaliser
    return each


def weight(batch: Batch, aggregation: Aggregation, normaliser: float) -> float:
    """This batch's share of the denominator: trained tokens, or trajectories that train at all, each times its row weight."""
    if aggregation == "token_mean":
        return float((batch.weights_R[batch.row_N] * batch.loss_mask_N).double().sum())
    trained = (_lengths(batch) > 0).double()
    return float((batch.weights_R.double() * _shares(batch).double() * trained).sum())


def _lengths(batch: Batch) -> Tensor:
    """Trained positions of each row."""
    zeros = batch.weights_R.new_zeros(batch.num_rows)
    return zeros.index_add(0, batch.row_N, batch.loss_mask_N.to(zeros.dtype))


def _shares(batch: Batch) -> Tensor:
    """Each row's share of its trajectory: rows that were cut out of one trajectory weigh together what it weighed whole."""
    return batch.weights_R.new_ones(batch.num_rows) if batch.share_R is None else batch.share_R

"""Batches for the contract of losses: rows of given lengths with random fields, cut into parts, and stopped gradients held still.

Shapes: N scored positions, R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from posttrain.losses._base import Batch
from posttrain.types import Segment, Segments


def build(lengths: Sequence[int], **given: Any) -> Batch:
    """A batch of rows with ``lengths`` scored positions each, always the same; ``given`` fields replace the random ones."""
    generator = torch.Generator().manual_seed(7)
    n, rows = sum(lengths), len(lengths)

    def logprobs() -> Tensor:
        return -torch.rand(n, generator=generator, dtype=torch.float64) * 2 - 0.05

    row_N = torch.repeat_interleave(torch.arange(rows), torch.tensor(lengths))
    made: dict[str, Any] = {
        "token_ids_T": torch.zeros(n + 1, dtype=torch.int64),
        "position_ids_T": torch.arange(n + 1),
        "segments": Segments((Segment(0, n + 1),)),
        "row_index_N": torch.arange(n),
        "target_ids_N": torch.zeros(n, dtype=torch.int64),
        "row_N": row_N,
        "turn_N": torch.ones(n, dtype=torch.int64),
        "loss_mask_N": torch.ones(n, dtype=torch.bool),
        "advantages_N": torch.randn(rows, generator=generator)[row_N],
        "weights_R": torch.ones(rows),
        "pair_R": torch.arange(rows),
        "rewards_R": torch.zeros(rows),
        "rollout_logprobs_N": logprobs(),
        "ref_logprobs_N": logprobs(),
        "trajectory_ids": tuple(f"t{r}" for r in range(rows)),
    }
    return Batch(**{**made, **given})


def rows_of(batch: Batch, keep: Sequence[int]) -> tuple[Batch, Tensor]:
    """The batch of some of its rows, and which positions they hold (bool, N)."""
    mine = torch.isin(batch.row_N, torch.tensor(keep))
    renumber = {row: i for i, row in enumerate(keep)}
    kept: dict[str, Any] = {"row_N": torch.tensor([renumber[int(r)] for r in batch.row_N[mine]])}
    for name, value in per_position(batch).items():
        kept.setdefault(name, value[mine])
    for name in ("weights_R", "pair_R", "rewards_R", "share_R"):
        value = getattr(batch, name)
        kept[name] = None if value is None else value[list(keep)]
    kept["trajectory_ids"] = tuple(batch.trajectory_ids[r] for r in keep)
    return replace(batch, **kept), mine


def per_position(batch: Batch) -> dict[str, Tensor]:
    """Every field that holds one value a scored position."""
    return {f.name: value for f in fields(batch) if f.name.endswith("_N") and (value := getattr(batch, f.name)) is not None}


class HeldStill(TorchFunctionMode):
    """Whatever is computed without a gradient (``detach()``, ``torch.no_grad()``) is in every pass what it was in the first.

    So finite differences see a stopped gradient as the constant that it is. ``begin()`` starts a pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: list[Tensor] = []
        self._at = 0

    def begin(self) -> None:
        """The next pass."""
        self._at = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        stopped = func is torch.Tensor.detach or not torch.is_grad_enabled()
        if not stopped or not isinstance(found, Tensor):
            return found
        if self._at == len(self._seen):
            self._seen.append(found.clone())
        self._at += 1
        return self._seen[self._at - 1].clone()

"""Batches for the tests of losses: rows of given lengths with random fields, and the replay of stopped gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from posttrain.losses._base import Batch
from posttrain.types import Segment, Segments


def build(lengths: Sequence[int], **fields: Any) -> Batch:
    """A batch of rows with ``lengths`` scored positions each; ``fields`` replace the random ones."""
    generator = torch.Generator().manual_seed(7)
    n, rows = sum(lengths), len(lengths)

    def logprobs() -> Tensor:
        return -torch.rand(n, generator=generator, dtype=torch.float64) * 2 - 0.05

    row_N = torch.repeat_interleave(torch.arange(rows), torch.tensor(lengths))
    given: dict[str, Any] = {
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
    return Batch(**{**given, **fields})


@contextmanager
def frozen_detach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Makes the n-th ``detach()`` of every pass return what it returned in the first pass; call the yielded function between
    passes. So finite differences see a stopped gradient as the constant that it is."""
    seen: list[Tensor] = []
    original = torch.Tensor.detach
    at = [0]

    def detach(tensor: Tensor) -> Tensor:
        if at[0] == len(seen):
            seen.append(original(tensor).clone())
        at[0] += 1
        return seen[at[0] - 1].clone()

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "detach", detach)
        yield lambda: at.__setitem__(0, 0)


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return build


@pytest.fixture
def replay_detach(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    return lambda: frozen_detach(monkeypatch)

"""What this machine's matmuls are like, by measurement: which precision is faster, whether a row's bits are its own."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from posttrain.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Precision = Literal["fast", "exact"]
ROWS, WIDTH = 64, 576  # a decode step of the built-in model
MIN_ROWS = 4  # with fewer, an fp32 matmul takes another path and other bits
GAIN = 1.2  # bf16 must win by this much to be worth its rounding


@functools.cache
def choose_precision(device: str = "cpu") -> Precision:
    """``fast`` (bf16) where a bf16 matmul beats an fp32 one by at least 1.2x, else ``exact`` (fp32). Takes a few ms, once."""
    import torch

    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UsageError(f"There is no device {device!r}; use cpu, or cuda with a GPU.") from error
    if kind != "cpu":
        return "fast"

    def seconds(dtype: torch.dtype) -> float:
        left, right = torch.ones(ROWS, WIDTH, dtype=dtype), torch.ones(3 * WIDTH, WIDTH, dtype=dtype)
        times = []
        for _ in range(12):
            start = time.perf_counter()
            torch.nn.functional.linear(left, right)
            times.append(time.perf_counter() - start)
        return min(times)  # the least disturbed one

    return "fast" if seconds(torch.float32) > GAIN * seconds(torch.bfloat16) else "exact"


def rows_stand_alone(weights: Iterable[Tensor]) -> bool:
    """Whether a row times a weight ``[out, in]`` has the same bits among ``MIN_ROWS`` rows as among hundreds.

    One weight of each shape is tried, some 10 ms for a small model. Matmuls may choose the order of their additions by
    the number of rows, and then an answer depends on what is sampled at the same time.
    """
    import torch

    tried = {(w.shape, w.dtype, w.device): w for w in weights}
    for weight in tried.values():
        made = torch.Generator().manual_seed(0)
        rows = torch.randn(300, weight.shape[1], generator=made).to(weight)
        whole = torch.nn.functional.linear(rows, weight)
        for few in (MIN_ROWS, MIN_ROWS + 1, 16, 64):
            if not torch.equal(torch.nn.functional.linear(rows[:few], weight), whole[:few]):
                return False
    return True

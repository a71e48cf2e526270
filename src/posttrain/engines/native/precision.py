"""Which precision is faster on this machine, by measurement: without bf16 instructions bf16 is slower than fp32."""

from __future__ import annotations

import functools
import time
from typing import Literal

from posttrain.errors import UsageError

Precision = Literal["fast", "exact"]
ROWS, WIDTH = 64, 576  # a decode step of the built-in model
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

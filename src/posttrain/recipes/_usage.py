"""What a step of a recipe used of this machine."""

from __future__ import annotations

import resource
import sys
import time


def used(since: float) -> dict[str, float]:
    """For a row of metrics: process CPU seconds after ``since`` (a ``time.process_time()``), and the peak memory so far."""
    return {"cpu_seconds": time.process_time() - since, "peak_memory_bytes": float(peak_memory())}


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale

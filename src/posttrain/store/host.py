"""What a run ran on: versions and host, without importing anything heavy."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

PACKAGES = ("posttrain", "torch", "transformers", "tokenizers", "numpy")


def describe() -> dict[str, Any]:
    """``{"versions": {...}, "cpu": "...", "threads": 2, "platform": "..."}``; a missing package has version ""."""
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) or "" for name in PACKAGES}},
        "cpu": _cpu(),
        "cores": cores(),
        "threads": int(os.environ.get("OMP_NUM_THREADS") or 0) or None,  # None: the library's own choice
        "platform": platform.platform(),
        "pid": os.getpid(),
    }


def version(package: str) -> str | None:
    """The version of an installed package, None without it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), platform.machine())

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
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "threads": int(os.environ.get("OMP_NUM_THREADS") or 0) or None,  # None: the library's own choice
        "platform": platform.platform(),
        "pid": os.getpid(),
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), platform.machine())

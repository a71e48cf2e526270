"""Which processes hold the sandboxes of this one, for tests that kill them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def children(pid: int) -> set[int]:
    """Living children of a process, whatever thread started them."""
    out: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            out |= set(map(int, task.read_text().split()))
    return {child for child in out if _state(child) not in "ZX"}


def supervisors() -> set[int]:
    """The supervisors that this process started."""
    out = set()
    for child in children(os.getpid()):
        with contextlib.suppress(OSError):
            if b"supervisor.main" in Path(f"/proc/{child}/cmdline").read_bytes():
                out.add(child)
    return out


def sandboxes() -> set[int]:
    """The first process of each sandbox."""
    return {child for supervisor in supervisors() for child in children(supervisor)}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except OSError:
        return "X"

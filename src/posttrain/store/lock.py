"""One writer at a time: a lock that dies with its process, so that none is ever stale.

The operating system holds the lock (``flock``); the file's text only tells who has it. On a host without ``flock`` there
is no lock, and two writers are the user's to avoid.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from posttrain.errors import UsageError
from posttrain.store.jsonl import disk_error

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Lock:
    """The lock of a run directory. ``took_over`` is the process that had it and died without giving it back, 0 for none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.took_over = 0
        self._fd: int | None = None

    def acquire(self) -> None:
        """Takes the lock or raises ``UsageError`` naming the process that writes."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise disk_error(self.path, 64, error) from error
        if fcntl is not None:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                owner = os.read(fd, 200).decode(errors="replace").strip()
                os.close(fd)
                raise UsageError(
                    f"{self.path.parent} is being written by another run ({owner or 'unknown process'}); "
                    "wait for it or stop it, or choose another directory with --out"
                ) from None
        before = os.read(fd, 200).decode(errors="replace").split()
        self.took_over = int(before[1]) if len(before) > 1 and before[1].isdigit() else 0
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        except OSError as error:
            os.close(fd)
            raise disk_error(self.path, 64, error) from error
        self._fd = fd

    def release(self) -> None:
        """Gives the lock back and forgets the owner."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

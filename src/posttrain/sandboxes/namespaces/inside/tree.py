"""The processes of a sandbox as /proc shows them: which they are, what they hold, and a signal that can hit nobody else."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """``ticks``: of CPU time, of it and of the children that it has waited for. ``began``: since the machine's start."""

    pid: int
    parent: int
    state: str
    ticks: int
    threads: int
    began: int


def row(proc: str, pid: int) -> Row | None:
    """One process; None where it is gone or hidden."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            rest = file.read().rsplit(b") ", 1)[1].split()
    except (OSError, IndexError):
        return None
    return Row(pid, int(rest[1]), chr(rest[0][0]), sum(map(int, rest[11:15])), int(rest[17]), int(rest[19]))


def rows(proc: str) -> list[Row]:
    """Every process that this /proc shows."""
    found = (row(proc, int(name)) for name in os.listdir(proc) if name.isdigit())
    return [r for r in found if r is not None]


def descendants(top: int, proc: str = "/proc") -> list[Row]:
    """Every process that came from ``top``, which must be a subreaper, or those whose parent has died are missing."""
    known = {r.pid: r for r in rows(proc)}
    return [r for r in known.values() if r.pid != top and _comes_from(top, r, known)]


def _comes_from(top: int, r: Row, known: dict[int, Row]) -> bool:
    """By a chain of parents each older than its child: a number that was given anew breaks it."""
    while r.pid != top:
        parent = known.get(r.parent)
        if parent is None or parent.began > r.began:
            return False
        r = parent
    return True


def strike(top: int, pid: int, number: int) -> bool:
    """A signal to a process that came from ``top``, and to no other; whether it was sent.

    Its number may be given to a process of somebody else's at any moment. So it is held first, by a descriptor, and looked at
    then: if what has the number now came from ``top``, the descriptor is either of it or of one that is dead already.
    """
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        known: dict[int, Row] = {}
        at = pid
        while at != top and at > 1 and at not in known:
            found = row("/proc", at)
            if found is None:
                return False
            known[at] = found
            at = found.parent
        top_row = row("/proc", top)
        if at != top or pid == top or top_row is None or not _comes_from(top, known[pid], known | {top: top_row}):
            return False
        signal.pidfd_send_signal(held, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(held)
    return True


def resident(proc: str, pids: Iterable[int], enough: int) -> int:
    """Bytes of memory of these. Above ``enough`` it is counted again: forks share pages, and each is one page."""
    held = {pid: _fields(proc, pid, "status", "RssAnon:", "RssShmem:") or 0 for pid in pids}
    if sum(held.values()) <= enough:
        return sum(held.values())
    shares = {pid: _fields(proc, pid, "smaps_rollup", "Pss_Anon:", "Pss_Shmem:") for pid in held}
    return sum(held[pid] if share is None else share for pid, share in shares.items())


def _fields(proc: str, pid: int, file: str, *keys: str) -> int | None:
    """The sum of such lines, in bytes; None where the file or its lines cannot be read: a program may shut it."""
    try:
        with open(f"{proc}/{pid}/{file}") as lines:
            found = [int(line.split()[1]) for line in lines if line.startswith(keys)]
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has died meanwhile
    except OSError:
        return None
    return 1024 * sum(found) if found else None


def waited(proc: str, pids: Iterable[int]) -> float:
    """Seconds that every thread of these stood in line for a CPU."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"{proc}/{pid}/task"):
                with open(f"{proc}/{pid}/task/{thread}/schedstat") as file:
                    total += int(file.read().split()[1])
    return total / 1e9

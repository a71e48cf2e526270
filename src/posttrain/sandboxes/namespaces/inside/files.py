"""What programs left in a directory of theirs: how much it is, a copy of it, its end. They may have made it hard to walk.

Directories are opened one below the other and no link is followed, however deep it goes; one that was shut is opened again.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator

from .rooms import copy_layer

DEEPEST = 100  # levels; more counts as more files than any limit allows


def used(top: str, enough: tuple[int, int]) -> tuple[int, int]:
    """(bytes on disk, files) of all below ``top``; stops where either is past ``enough``. A file with two names counts once."""
    size, count, seen = 0, 0, set()
    for status in _walk(top, open_up=False):
        if status is None:
            return enough[0] + 1, enough[1] + 1
        count += 1
        if status.st_nlink == 1 or stat.S_ISDIR(status.st_mode) or status.st_ino not in seen:
            size += status.st_blocks * 512
            seen.add(status.st_ino)
        if size > enough[0] or count > enough[1]:
            break
    return size, count


def copy(source: str, target: str) -> None:
    """A copy in which nothing is shared. No program may run meanwhile. What its owner could not read can be read after."""
    for status in _walk(source, open_up=True):
        if status is None:
            raise OSError(36, f"directories more than {DEEPEST} deep are not copied")
    copy_layer(source, target, attributes=False)


def remove(top: str) -> None:
    """All of it, as deep as it goes; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        for _ in _walk(top, open_up=True):
            pass
    subprocess.run(["/bin/rm", "-rf", "--", top], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={}, check=False)


def _walk(top: str, *, open_up: bool) -> Iterator[os.stat_result | None]:
    """The status of each thing below ``top``; None for a directory that is too deep. ``open_up``: files become readable too."""
    stack = [_directory(top, None)]
    names = [list(os.listdir(stack[0]))]
    try:
        while stack:
            if not names[-1]:
                names.pop()
                os.close(stack.pop())
                continue
            name, here = names[-1].pop(), stack[-1]
            try:
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
                yield status
                if stat.S_ISDIR(status.st_mode):
                    if len(stack) > DEEPEST:
                        yield None
                        continue
                    inner = _directory(name, here)
                    stack.append(inner)
                    names.append([])
                    names[-1] = os.listdir(inner)
                elif open_up and stat.S_ISREG(status.st_mode) and not status.st_mode & 0o400:
                    _chmod(name, here, stat.S_IMODE(status.st_mode) | 0o400)
            except (FileNotFoundError, NotADirectoryError):
                continue  # gone meanwhile, or another thing
    finally:
        for fd in stack:
            os.close(fd)


def _directory(name: str, where: int | None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(PermissionError):
        fd = os.open(name, flags, dir_fd=where)
        if os.fstat(fd).st_mode & 0o700 == 0o700:
            return fd
        os.close(fd)
    _chmod(name, where, 0o700)
    return os.open(name, flags, dir_fd=where)


def _chmod(name: str, where: int | None, mode: int) -> None:
    """Of the thing itself, which must be the one that the name leads to now, and no link."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=where)
    try:
        if not stat.S_ISLNK(os.fstat(fd).st_mode):
            os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)

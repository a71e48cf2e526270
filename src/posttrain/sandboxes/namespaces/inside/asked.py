"""Modes and times of files, changed on a program's behalf where Landlock cannot say which: of the sandbox's own files only.

The filter hands such a call over; the program waits meanwhile. What it named is opened first and looked at then, so that no
link and no race leads elsewhere. Nothing is changed but what the same user could, and no setuid bit is set.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Sequence

from .kernel import ARM
from .walls import ASKED

RECEIVE, SEND, STILL_THERE = 0xC0502100, 0xC0182101, 0x40082102
QUESTION, ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
AT_FDCWD, NOFOLLOW, EMPTY_PATH = -100, 0x100, 0x1000
NOW, OMIT = 0x3FFFFFFF, 0x3FFFFFFE
LONGEST = 4096  # bytes of a path
NAMES = {numbers[ARM]: name for name, numbers in ASKED.items()}


def answer(listener: int, places: Sequence[str]) -> None:
    """One question. ``places``: directories, by their true paths, whose files may be changed. Raises OSError for none there."""
    record = bytearray(QUESTION.size)
    fcntl.ioctl(listener, RECEIVE, record)
    number, pid, _, call, _, _, *args = QUESTION.unpack(record)
    try:
        _do(listener, number, pid, NAMES[call], args, places)
        wrong = 0
    except OSError as error:
        wrong = error.errno or errno.EPERM
    with contextlib.suppress(FileNotFoundError):  # it has died meanwhile
        fcntl.ioctl(listener, SEND, ANSWER.pack(number, 0, -wrong, 0))


def _do(listener: int, number: int, pid: int, name: str, args: list[int], places: Sequence[str]) -> None:
    at, path, flags = AT_FDCWD, args[0], 0
    if name == "fchmod":
        at, path = _signed(args[0]), 0
    elif name != "chmod":
        at, path = _signed(args[0]), args[1]
        flags = args[3] if name in ("fchmodat2", "utimensat") else 0
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = _text(memory, path) if path else b""
        times = _times(memory, args[2]) if name == "utimensat" else ()
        base = f"/proc/{pid}/cwd" if at == AT_FDCWD else f"/proc/{pid}/fd/{at}"
        if not text:
            if path and not flags & EMPTY_PATH:
                raise OSError(errno.ENOENT, "an empty path")
            found = os.open(base, os.O_PATH | os.O_CLOEXEC)
        else:
            found = _open(base, text, bool(flags & NOFOLLOW))
    finally:
        os.close(memory)
    try:
        fcntl.ioctl(listener, STILL_THERE, struct.pack("=Q", number))  # else its number, and all we read, may be another's
        where = os.readlink(f"/proc/self/fd/{found}")
        if not any(where == place or where.startswith(place + "/") for place in places):
            raise OSError(errno.EPERM, "not the sandbox's")
        if name == "utimensat":
            _touch(found, times)
        else:
            os.chmod(f"/proc/self/fd/{found}", args[2 if name.startswith("fchmodat") else 1] & 0o1777)
    finally:
        os.close(found)


def _open(base: str, text: bytes, nofollow: bool) -> int:
    directory = os.open(base, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.open(text, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if nofollow else 0), dir_fd=directory)
    finally:
        os.close(directory)


def _touch(found: int, times: Sequence[tuple[int, int]]) -> None:
    path = f"/proc/self/fd/{found}"
    if not times or all(part == NOW for _, part in times):
        os.utime(path)
        return
    old = os.stat(path)
    kept = (old.st_atime_ns, old.st_mtime_ns)
    new = [
        k if part == OMIT else old.st_ctime_ns if part == NOW else s * 10**9 + part
        for (s, part), k in zip(times, kept, strict=True)
    ]
    os.utime(path, ns=(new[0], new[1]))


def _times(memory: int, pointer: int) -> list[tuple[int, int]]:
    if not pointer:
        return []
    try:
        values = struct.unpack("=4q", os.pread(memory, 32, pointer))
    except struct.error:
        raise OSError(errno.EFAULT, "times") from None
    return [values[:2], values[2:]]


def _text(memory: int, pointer: int) -> bytes:
    """Up to the NUL; page by page, since the next page may not be there."""
    out = b""
    while len(out) < LONGEST:
        part = os.pread(memory, 4096 - (pointer + len(out)) % 4096, pointer + len(out))
        head, end, _ = part.partition(b"\0")
        out += head
        if end:
            return out
        if not part:
            raise OSError(errno.EFAULT, "a path")
    raise OSError(errno.ENAMETOOLONG, "a path")


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value

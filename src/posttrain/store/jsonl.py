"""One append-only JSONL file: whole lines, flushed at once; a broken tail is repaired, undone rows are marked.

Nothing written is ever changed. ``rewind`` appends a marker line ``{"rewind": {"stage": ..., "step": ...}}``: rows of that
stage and of a later step that stand before it are skipped by every reader.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.errors import HostError, InvalidRun

_MARKER = b'{"rewind":'


class Log:
    """An append-only file of JSON objects, opened at its first write.

    A write is one system call of whole lines, so that a kill leaves at most one broken line, the last.
    Raises ``HostError`` with path and bytes where the disk is full or the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes rows as lines; the operating system has them when this returns."""
        self._write(b"".join(line(row) for row in rows))

    def _write(self, data: bytes) -> None:
        if not data:
            return
        start: int | None = None
        done = 0
        try:
            if self._fd is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            start = os.fstat(self._fd).st_size
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError as error:
            if start is not None and self._fd is not None:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, start)  # take back the half line that did fit
            raise disk_error(self.path, len(data), error) from error

    def rewind(self, stage: str, step: int | None) -> bool:
        """Marks rows of ``stage`` after ``step`` (None: all of them) as undone; False where there are none to mark."""
        if not any(row.get("stage") == stage and _later(row, step) for row in self.rows()):
            return False
        self.append([{"rewind": {"stage": stage, "step": step}}])
        return True

    def sync(self) -> None:
        """Forces what was written onto the disk."""
        if self._fd is None:
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno != 22:  # EINVAL: a pipe or a device, which has nothing to force
                raise disk_error(self.path, 0, error) from error

    def close(self) -> None:
        """Closes the file; the next write opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def repair(self) -> str:
        """Mends the tail that a kill or a power cut broke; says what was done, "" where nothing was.

        A last line that is whole but for its line end gets it; a fragment (or zero bytes) is cut off: it was never reported.
        """
        if not self.path.is_file():
            return ""
        with self.path.open("r+b") as file:
            tail = _tail(file)
            if not tail:
                return ""
            if _parse(tail) is not None:
                file.seek(0, os.SEEK_END)
                file.write(b"\n")
                return f"{self.path.name}: the last line lacked its line end, added"
            file.truncate(file.seek(0, os.SEEK_END) - len(tail))
            return f"{self.path.name}: a kill or a power cut left {len(tail):,} bytes of an unfinished last line, removed"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows that stand, in order. An unfinished last line is passed over; a broken one elsewhere is ``InvalidRun``."""
        return (row for _, _, row in self.located())

    def located(self, start: int = 0) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """(offset, length in bytes, row) of rows that stand, from the line that begins at byte ``start`` on."""
        marks = list(self._marks(start))
        for number, offset, raw in self._lines(start):
            if raw.startswith(_MARKER):
                continue
            row = _parse(raw)
            if row is None:
                if not raw.endswith(b"\n"):
                    return
                where = f"line {number}" if not start else f"byte {offset}"
                raise InvalidRun(
                    f"{self.path}, {where} is no JSON object: {raw[:80]!r}; the file was changed or damaged after it was "
                    "written. Restore it from a copy, or remove that line to go on without it"
                )
            if not any(number < at and row.get("stage") == stage and _later(row, step) for at, stage, step in marks):
                yield offset, len(raw), row

    def _marks(self, start: int) -> Iterator[tuple[int, str, int | None]]:
        for number, _, raw in self._lines(start):
            if raw.startswith(_MARKER) and (row := _parse(raw)) is not None:
                yield number, row["rewind"]["stage"], row["rewind"]["step"]

    def _lines(self, start: int) -> Iterator[tuple[int, int, bytes]]:
        """(line number from 1, counted from ``start``; offset; bytes) of the file as it is now."""
        if not self.path.is_file():
            return
        offset = start
        with self.path.open("rb") as file:
            file.seek(start)
            for number, raw in enumerate(file, start=1):
                yield number, offset, raw
                offset += len(raw)


def line(row: Mapping[str, Any]) -> bytes:
    """One strict JSON line. Text that UTF-8 cannot say (a lone surrogate) is escaped, so every string survives."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def write_whole(path: Path, text: str) -> None:
    """Writes a small file so that a kill leaves either the old one or the new one. Raises ``HostError``."""
    data = text.encode()
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise disk_error(path, len(data), error) from error


def disk_error(path: Path, num_bytes: int, error: OSError) -> HostError:
    """What a failed write means for the user."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return HostError(f"cannot write {path}: {error.strerror or error}. Mend that, or choose another place with --out")
    return HostError(
        f"cannot write {num_bytes:,} bytes to {path}: {error.strerror or error}. Everything reported before is safe; "
        f"free at least that much on the disk of {path.parent} (or pass --out on another one), then resume the run"
    )


def _later(row: Mapping[str, Any], step: int | None) -> bool:
    return step is None or (isinstance(row.get("step"), int) and row["step"] > step)


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(raw)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _tail(file: Any, block: int = 1 << 16) -> bytes:
    """Bytes after the last line end."""
    size = file.seek(0, os.SEEK_END)
    tail = b""
    while size > 0:
        step = min(block, size)
        size -= step
        file.seek(size)
        tail = bytes(file.read(step)) + tail
        if (cut := tail.rfind(b"\n")) >= 0:
            return tail[cut + 1 :]
    return tail

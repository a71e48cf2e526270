"""Directories that are either whole or not there: written beside their place, checksummed, synced, renamed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from posttrain.errors import HostError, UsageError

MANIFEST = "manifest.json"
PARTIAL = ".partial-"  # prefix of a directory that is being written; never read, removed by the next write
FULL = {errno.ENOSPC, errno.EDQUOT}


def write(target: str | Path, fill: Callable[[Path], None]) -> Path:
    """Calls ``fill`` on an empty directory and makes it ``target`` in one rename; an old ``target`` is replaced.

    A manifest with the SHA-256 and size of every file is added. Raises HostError where the disk is full: nothing is left
    under ``target`` that was not there before.
    """
    target = Path(target)
    partial = target.parent / f"{PARTIAL}{target.name}-{uuid.uuid4().hex[:8]}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for stale in target.parent.glob(f"{PARTIAL}{target.name}-*"):  # of a writer that was killed
            shutil.rmtree(stale, ignore_errors=True)
        partial.mkdir()
        fill(partial)
        files = sorted(p for p in partial.rglob("*") if p.is_file())
        manifest = {str(p.relative_to(partial)): {"sha256": _checksum(p), "bytes": p.stat().st_size} for p in files}
        (partial / MANIFEST).write_text(json.dumps({"files": manifest}, indent=1) + "\n")
        mode = (partial / MANIFEST).stat().st_mode & 0o777  # what the user's umask gives; safetensors' own is for one user only
        for path in files:
            path.chmod(mode)
        for path in [*files, partial / MANIFEST, partial]:
            _sync(path)
        if target.exists():
            _swap(target, partial)
        else:
            partial.rename(target)
        _sync(target.parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if error.errno in FULL:
            raise HostError(_full(target)) from error
        raise HostError(
            f"cannot write {target}: {error.strerror or error}; choose another --out or mend the directory"
        ) from error
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if "os error 28" in str(error) or "No space left" in str(error):  # safetensors' own error, raised from Rust
            raise HostError(_full(target)) from error
        raise
    return target


def problem(directory: str | Path) -> str:
    """Why a directory that ``write`` made must not be read; "" where it is whole."""
    directory = Path(directory)
    try:
        files = json.loads((directory / MANIFEST).read_text())["files"]
    except FileNotFoundError:
        return f"{directory} has no {MANIFEST}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{directory / MANIFEST} cannot be read ({error})"
    for name, known in files.items():
        path = directory / name
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != known["bytes"]:
            return f"{path} has {path.stat().st_size} bytes instead of {known['bytes']}"
        if _checksum(path) != known["sha256"]:
            return f"{path} does not match its checksum"
    return ""


def require_whole(directory: str | Path) -> Path:
    """The directory; UsageError where it is missing or damaged."""
    found = problem(directory)
    if found:
        raise UsageError(f"the checkpoint is damaged: {found}; go back to an earlier one")
    return Path(directory)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Forces a file or a directory's entries to disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _swap(target: Path, new: Path) -> None:
    """Replaces a directory; for the moment between two renames the old one is kept under the partial name."""
    old = new.with_name(new.name + "-old")
    target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _full(target: Path) -> str:
    return (
        f"the disk of {target.parent} is full, {target.name} was not written and nothing before it is lost; free space "
        f"(older checkpoints in {target.parent} can go), then resume the run"
    )

"""Directories that are whole or not there."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.errors import HostError, UsageError
from posttrain.train import checkpoint


def write(path: Path, content: bytes = b"x" * 5000) -> Path:
    def fill(folder: Path) -> None:
        (folder / "a.bin").write_bytes(content)
        (folder / "deep").mkdir()
        (folder / "deep" / "b.bin").write_bytes(content[::-1])

    return checkpoint.write(path, fill)


def test_files_can_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "a.safetensors").write_bytes(b"x")
        (folder / "a.safetensors").chmod(0o600)

    plain = tmp_path / "plain"
    plain.write_text("")
    path = checkpoint.write(tmp_path / "one", fill)
    assert (path / "a.safetensors").stat().st_mode == plain.stat().st_mode


def test_writes_all_or_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "one")
    assert checkpoint.problem(path) == "" and checkpoint.require_whole(path) == path
    write(path, b"other")
    assert (path / "a.bin").read_bytes() == b"other" and checkpoint.problem(path) == ""

    def fill(folder: Path) -> None:
        (folder / "a.bin").write_bytes(b"half")
        raise RuntimeError("a bug")

    for name in ("one", "two"):
        with pytest.raises(RuntimeError, match="a bug"):
            checkpoint.write(tmp_path / "new" / name, fill)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["one"] and (path / "a.bin").read_bytes() == b"other"


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), Exception("I/O error: No space left on device (os error 28)")]
)
def test_a_full_disk_says_what_to_free(tmp_path: Path, error: Exception) -> None:
    def fill(folder: Path) -> None:
        (folder / "a.bin").write_bytes(b"half")
        raise error

    write(tmp_path / "old")
    with pytest.raises(HostError, match=r"is full.*nothing before it is lost.*resume"):
        checkpoint.write(tmp_path / "new", fill)
    assert [p.name for p in tmp_path.iterdir()] == ["old"]


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot write"):
        write(tmp_path / "file" / "below")


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest", "no manifest"])
def test_damage_is_found(tmp_path: Path, damage: str) -> None:
    write(tmp_path / "step-1")
    newest = write(tmp_path / "step-2")
    file = newest / "deep" / "b.bin"
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[100] ^= 1
        file.write_bytes(content)
    elif damage == "truncate":
        file.write_bytes(content[:-1])
    elif damage == "remove":
        file.unlink()
    elif damage == "manifest":
        (newest / checkpoint.MANIFEST).write_text("{")
    else:
        (newest / checkpoint.MANIFEST).unlink()
    assert "step-2" in checkpoint.problem(newest) and checkpoint.problem(tmp_path / "step-1") == ""
    with pytest.raises(UsageError, match="earlier"):
        checkpoint.require_whole(newest)


def test_a_writer_that_is_killed_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    code = (
        "import os, sys; from posttrain.train import checkpoint\n"
        "def fill(f):\n    (f / 'a.bin').write_bytes(b'half'); os.kill(os.getpid(), 9)\n"
        f"checkpoint.write({str(tmp_path / 'step-1')!r}, fill)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, timeout=60, check=False)
    assert done.returncode == -9
    assert not (tmp_path / "step-1").exists()
    assert len(list(tmp_path.iterdir())) == 1
    write(tmp_path / "step-1")  # the next one sweeps up
    assert [p.name for p in tmp_path.iterdir()] == ["step-1"]

"""Where an exported model and a report may go."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from posttrain.dashboard.report import write_report
from posttrain.errors import HostError, UsageError
from posttrain.recipes.export import main
from posttrain.store.run_dir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> Path:
    RunDir.create(tmp_path / "run", {"recipe": "rlvr"}).close()
    (tmp_path / "run" / "model" / "model.safetensors").write_bytes(b"weights")
    return tmp_path / "run"


def test_a_file_in_the_way_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="not an empty directory"):
        main(str(run), out=str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_leaves_no_half_model(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path, **_: Any) -> None:
        target.mkdir()
        (target / "config.json").write_text("{}")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(HostError, match="No space left on device"):
        main(str(run), out=str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_report_goes_to_a_file(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        write_report(RunDir.open(run), tmp_path)

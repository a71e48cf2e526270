"""Files of rows: every format gives the same rows, every fault names its line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from posttrain.datasets.files import column, read_rows
from posttrain.errors import HostError, UsageError

ROWS = [{"prompt": "2+2?", "answer": "4"}, {"prompt": "ünï", "answer": 5}]


def test_json_lines_and_json_lists(tmp_path: Path) -> None:
    lines, whole = tmp_path / "a.jsonl", tmp_path / "a.json"
    lines.write_bytes(b"\xef\xbb\xbf" + "\n\n".join(json.dumps(r, ensure_ascii=False) for r in ROWS).encode())
    whole.write_text(json.dumps(ROWS))
    assert [r for _, r in read_rows(lines)] == [r for _, r in read_rows(whole)] == ROWS
    assert [p for p, _ in read_rows(lines)] == [f"{lines}, line 1", f"{lines}, line 3"]


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the parquet extra is not installed")
    from pyarrow import parquet

    rows = [{"prompt": "a", "n": 1}, {"prompt": "b", "n": None}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet")) == [(f"{tmp_path / 'a.parquet'}, row {i + 1}", r) for i, r in enumerate(rows)]
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(UsageError, match=r"b\.parquet is not a parquet file"):
        list(read_rows(tmp_path / "b.parquet"))


def test_parquet_without_its_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HostError, match=r'pip install "posttrain\[parquet\]"'):
        list(read_rows(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b'{"a": 1}\n{"a": ', r"a\.jsonl, line 2 is not JSON"),
        ("a.jsonl", b'{"a": 1}\n[1]\n', r"a\.jsonl, line 2 is a list, not an object"),
        ("a.jsonl", b'{"a": 1}\n{"b": "\xff"}\n', r"a\.jsonl, line 2 is not UTF-8 \(byte 8\)"),
        ("a.jsonl", b"\n\n", "holds no rows"),
        ("a.json", b'{"a": 1}', "holds a dict"),
        ("a.json", b"[1", "is not JSON"),
        ("a.csv", b"a,b", r"ends in '\.csv'"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=says):
        list(read_rows(tmp_path / name))


def test_a_missing_file_says_what_is_near(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}")
    with pytest.raises(UsageError, match=r"no file .*row\.jsonl.* holds rows\.jsonl"):
        list(read_rows(tmp_path / "row.jsonl"))


def test_a_missing_column_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"f, line 3 has no 'prompt'\. Did you mean 'prompts'\? Set prompt ="):
        column({"prompts": "x"}, "prompt", "f, line 3", "prompt")


@pytest.mark.parametrize("name", ["deep.jsonl", "deep.json"])
def test_brackets_without_end_are_a_bad_row_not_a_crash(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[" * 100_000)
    with pytest.raises(UsageError, match=rf"{name}.* is not JSON"):
        list(read_rows(tmp_path / name))

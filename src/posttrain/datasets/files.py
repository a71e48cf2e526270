"""Rows of a file with where each one stands, so that an error can name it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posttrain.errors import HostError, UsageError

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) for each row: ``("rows.jsonl, line 3", {"prompt": "2+2?", "answer": "4"})``.

    JSON lines, a JSON list of objects, or parquet (with the extra). Raises ``UsageError`` naming file and line for a missing
    file, a line that is no JSON object, or a file without rows.
    """
    if not path.is_file():
        near = sorted(p.name for p in path.parent.glob("*") if p.suffix in SUFFIXES) if path.parent.is_dir() else []
        hint = f" {path.parent} holds {', '.join(near[:5])}." if near else ""
        raise UsageError(f"there is no file {path}; give the path of a file of rows ({', '.join(SUFFIXES)}).{hint}")
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} ends in {path.suffix or 'nothing'!r}, but rows are read from {', '.join(SUFFIXES)}")
    read = {".json": _json, ".parquet": _parquet}.get(path.suffix, _lines)
    empty = True
    for place, row in read(path):
        empty = False
        if not isinstance(row, dict):
            raise UsageError(
                f'{place} is a {type(row).__name__}, not an object; a row looks like {{"prompt": "...", "answer": "..."}}'
            )
        yield place, row
    if empty:
        raise UsageError(f"{path} holds no rows")


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            place = f"{path}, line {number}"
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                if text.strip():
                    yield place, json.loads(text)
            except UnicodeDecodeError as error:
                raise UsageError(f"{place} is not UTF-8 (byte {error.start + 1}); save the file as UTF-8") from error
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{place} is not JSON: {error}; each line is one whole JSON object") from error


def _json(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, list):
        raise UsageError(f"{path} holds a {type(data).__name__}; a .json file of rows is a list of objects (or use .jsonl)")
    return ((f"{path}, row {i}", row) for i, row in enumerate(data, start=1))


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as error:
        raise HostError(f'{path} needs pyarrow, which is not installed: pip install "posttrain[parquet]"') from error
    try:
        file = parquet.ParquetFile(path)
    except ArrowInvalid as error:
        raise UsageError(f"{path} is not a parquet file: {error}") from error
    with file:
        number = 0
        for batch in file.iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", row


def column(row: dict[str, Any], name: str, place: str, option: str) -> Any:
    """A row's value. Raises ``UsageError`` naming the place, what the row has, and the option that names the column."""
    from posttrain.errors import nearest

    if row.get(name) is None:
        raise UsageError(f"{place} has no {name!r}.{nearest(name, row)} Set {option} = ... to the column's name, or mend the row")
    return row[name]

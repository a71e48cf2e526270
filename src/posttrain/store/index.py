"""A SQLite index over a run's trajectories, to find some among many without reading all. Derived: delete it at will.

It holds figures and where each attempt stands in its file; the attempt itself is always read from there. ``refresh`` reads only
what was appended since, a rewound or changed file anew, and a damaged index is made again.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from posttrain.errors import UsageError, nearest
from posttrain.store.jsonl import Log
from posttrain.store.records import decode
from posttrain.types import Trajectory

_VERSION = 1
_COLUMNS = {
    "file": "TEXT",
    "offset": "INTEGER",
    "length": "INTEGER",
    "stage": "TEXT",
    "step": "INTEGER",
    "id": "TEXT",
    "task": "TEXT",
    "environment": "TEXT",
    "template": "TEXT",
    "level": "INTEGER",
    "held_out": "INTEGER",
    "outcome": "TEXT",
    "status": "TEXT",
    "reward": "REAL",
    "advantage": "REAL",
    "tokens": "INTEGER",
    "retries": "INTEGER",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An attempt as the index knows it; ``status`` is "" where nothing judged it."""

    file: str
    offset: int
    length: int
    stage: str
    step: int
    id: str
    task: str
    environment: str
    template: str
    level: int
    held_out: int
    outcome: str
    status: str
    reward: float | None
    advantage: float | None
    tokens: int
    retries: int


class Index:
    """The index of one run directory; in memory where that directory cannot be written."""

    def __init__(self, run_path: str | Path) -> None:
        self.run_path = Path(run_path)
        if not (self.run_path / "run.json").is_file():
            raise UsageError(f"{self.run_path} holds no run; give the directory that 'posttrain run' printed")
        self._db = self._open()
        self.refresh()

    def _open(self) -> sqlite3.Connection:
        path = self.run_path / "index.sqlite"
        for _ in range(2):
            try:
                return self._prepared(sqlite3.connect(path, timeout=30))
            except sqlite3.OperationalError:
                break  # a directory that is read only
            except sqlite3.DatabaseError:
                for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm"):
                    (self.run_path / name).unlink(missing_ok=True)
        return self._prepared(sqlite3.connect(":memory:"))

    def _prepared(self, db: sqlite3.Connection) -> sqlite3.Connection:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            if db.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                with db:
                    db.execute("DROP TABLE IF EXISTS attempts")
                    db.execute("DROP TABLE IF EXISTS files")
                    db.execute(f"CREATE TABLE attempts ({', '.join(f'{n} {t}' for n, t in _COLUMNS.items())})")
                    db.execute("CREATE INDEX by_id ON attempts (id, stage)")
                    db.execute("CREATE INDEX by_environment ON attempts (environment, status)")
                    db.execute("CREATE TABLE files (file TEXT PRIMARY KEY, size INTEGER, head TEXT)")
                    db.execute(f"PRAGMA user_version = {_VERSION}")
            db.execute("SELECT count(*) FROM attempts").fetchone()
        except sqlite3.Error:
            db.close()
            raise
        return db

    def refresh(self) -> int:
        """Takes in what the files hold now; how many attempts were read."""
        read = 0
        known = {file: (size, head) for file, size, head in self._db.execute("SELECT file, size, head FROM files")}
        paths = {p.name: p for p in sorted((self.run_path / "trajectories").glob("*.jsonl"))}
        with self._db:
            for gone in set(known) - set(paths):
                self._forget(gone)
            for name, path in paths.items():
                read += self._take_in(name, path, known.get(name))
        return read

    def _take_in(self, name: str, path: Path, known: tuple[int, str] | None) -> int:
        with path.open("rb") as file:
            head = file.read(200).hex()
            start = 0
            if known is not None and known[0] <= path.stat().st_size and head.startswith(known[1]):
                start = known[0]
            file.seek(start)
            appended = file.read()
        end = start + appended.rfind(b"\n") + 1
        if start and b'{"rewind":' in appended:
            start = 0
        if start == 0:
            self._forget(name)
        entries = [self._entry(name, at, n, row) for at, n, row in Log(path).located(start) if at < end]
        marks = ", ".join("?" * len(_COLUMNS))
        self._db.executemany(f"INSERT INTO attempts VALUES ({marks})", entries)
        self._db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (name, end, head[: 2 * min(end, 200)]))
        return len(entries)

    def _forget(self, name: str) -> None:
        self._db.execute("DELETE FROM attempts WHERE file = ?", (name,))
        self._db.execute("DELETE FROM files WHERE file = ?", (name,))

    @staticmethod
    def _entry(file: str, offset: int, length: int, row: dict[str, Any]) -> tuple[Any, ...]:
        t: Trajectory = decode(row["trajectory"])
        status = t.verdict.status if t.verdict is not None else ""
        place = (
            file,
            offset,
            length,
            row["stage"],
            row["step"],
            t.id,
            t.task.id,
            t.task.environment,
            t.task.template,
            t.task.level,
        )
        return (*place, int(t.task.held_out), t.outcome, status, t.reward, t.advantage, t.num_sampled, t.retries)

    def select(
        self, *, order: str = "", descending: bool = False, limit: int = 0, min_reward: float | None = None, **equal: Any
    ) -> list[Entry]:
        """Attempts whose columns equal the given values: ``select(stage="rlvr", status="malformed", order="tokens", limit=5)``.

        Raises ``UsageError`` for a column that there is not.
        """
        for name in (*equal, *([order] if order else [])):
            if name not in _COLUMNS:
                raise UsageError(f"the index has no column {name!r}.{nearest(name, _COLUMNS)}")
        where = [f"{name} = ?" for name in equal] + (["reward >= ?"] if min_reward is not None else [])
        values = [*equal.values(), *([min_reward] if min_reward is not None else [])]
        direction: Literal["DESC", "ASC"] = "DESC" if descending else "ASC"
        query = "SELECT * FROM attempts" + (f" WHERE {' AND '.join(where)}" if where else "")
        query += f" ORDER BY {order} {direction}, file, offset" if order else " ORDER BY file, offset"
        query += f" LIMIT {int(limit)}" if limit else ""
        return [Entry(**dict(zip(_COLUMNS, row, strict=True))) for row in self._db.execute(query, values)]

    def load(self, entry: Entry) -> Trajectory:
        """The attempt itself, from its file."""
        with (self.run_path / "trajectories" / entry.file).open("rb") as file:
            file.seek(entry.offset)
            row = json.loads(file.read(entry.length))
        trajectory: Trajectory = decode(row["trajectory"])
        return trajectory

    def trajectories(self, **query: Any) -> Iterator[Trajectory]:
        """``select`` and ``load`` in one."""
        return (self.load(entry) for entry in self.select(**query))

    def close(self) -> None:
        """Closes the index."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

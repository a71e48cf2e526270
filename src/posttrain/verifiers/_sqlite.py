"""A throw-away sqlite database that hostile SELECTs cannot leave, fill or stall."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

STEPS_A_TICK = 1_000
MAX_BYTES = 10_000_000  # of one result
# Functions without side effects, without randomness or clock, whose result size sqlite's length limit bounds.
FUNCTIONS = frozenset(
    [
        "abs",
        "avg",
        "coalesce",
        "count",
        "date",
        "datetime",
        "group_concat",
        "ifnull",
        "iif",
        "instr",
        "length",
        "like",
        "glob",
        "lower",
        "ltrim",
        "max",
        "min",
        "nullif",
        "replace",
        "round",
        "rtrim",
        "sign",
        "strftime",
        "substr",
        "substring",
        "sum",
        "time",
        "total",
        "trim",
        "typeof",
        "unicode",
        "upper",
        "char",
        "hex",
        "printf",
        "format",
        "row_number",
        "rank",
        "dense_rank",
        "percent_rank",
        "cume_dist",
        "ntile",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "nth_value",
        "julianday",
        "string_agg",
        "concat",
        "concat_ws",
        "quote",
    ]
)
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})


class QueryFailed(Exception):
    """sqlite refused the query or it passed a bound; the message holds what sqlite says."""


class SeveralStatements(Exception):
    """More than one statement."""


@contextmanager
def database(schema: str, instance: Mapping[str, Sequence[Sequence[Any]]], *, max_heap: int = 0) -> Iterator[sqlite3.Connection]:
    """An in-memory database with the tables of ``schema``, filled, then closed to all but reading.

    ``max_heap`` bounds the bytes of all of this process's databases together (sqlite has no bound for one; 0: leaves it).
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(schema)
        for table, table_rows in instance.items():
            if table_rows:
                marks = ", ".join("?" * len(table_rows[0]))
                connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', table_rows)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 20_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 20)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, 25_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 60)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        if max_heap:
            connection.execute(f"PRAGMA hard_heap_limit = {max_heap:d}")
        connection.set_authorizer(_authorise)
        yield connection


def rows(connection: sqlite3.Connection, query: str, *, max_steps: int, max_rows: int) -> list[tuple[Any, ...]]:
    """All rows of one SELECT. Raises ``QueryFailed`` or ``SeveralStatements``, nothing else, whatever the text is."""
    ticks = 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return int(ticks * STEPS_A_TICK > max_steps)

    connection.set_progress_handler(tick, STEPS_A_TICK)
    try:
        found = _fetch(connection.execute(query), max_rows)
    except (sqlite3.Warning, sqlite3.ProgrammingError) as e:
        if "one statement at a time" in str(e):
            raise SeveralStatements(str(e)) from None
        raise QueryFailed(str(e)[:200]) from None
    except sqlite3.Error as e:
        text = f"it took more than {max_steps:,} steps" if "interrupted" in str(e) else str(e)[:200]
        raise QueryFailed(text) from None
    except (ValueError, OverflowError, MemoryError) as e:
        raise QueryFailed(type(e).__name__) from None
    finally:
        connection.set_progress_handler(None, 0)
    return found


def _fetch(cursor: sqlite3.Cursor, max_rows: int) -> list[tuple[Any, ...]]:
    """All rows, one at a time, so that neither their number nor their bytes can fill the memory."""
    found, size = [], 0
    for row in cursor:
        found.append(row)
        size += sum(len(v) for v in row if isinstance(v, str | bytes))
        if len(found) > max_rows:
            raise QueryFailed(f"it returned more than {max_rows:,} rows")
        if size > MAX_BYTES:
            raise QueryFailed(f"it returned more than {MAX_BYTES:,} bytes")
    return found


def same_rows(expected: list[tuple[Any, ...]], got: list[tuple[Any, ...]], *, ordered: bool) -> bool:
    """Equal as lists when the order was asked for, else as multisets: duplicates always count."""
    if ordered:
        return [_typed(r) for r in expected] == [_typed(r) for r in got]
    return Counter(map(_typed, expected)) == Counter(map(_typed, got))


def _typed(row: tuple[Any, ...]) -> tuple[tuple[str, Any], ...]:
    """Values with their storage class; numbers rounded to 9 digits, so that the order of a sum does not matter."""
    return tuple(_value(v) for v in row)


def _value(value: Any) -> tuple[str, Any]:
    if value is None:
        return "null", None
    if isinstance(value, int | float):
        if isinstance(value, int) or not math.isfinite(value):
            return "number", value
        return "number", float(f"{value:.9g}") if not value.is_integer() else int(value)
    return type(value).__name__, value


def _authorise(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Only reading, and only harmless functions; everything else makes the statement fail to compile."""
    if action in _ALLOWED:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY

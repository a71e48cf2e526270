"""How results leave: text for people or one JSON document, on standard output; the exit code that a result asks for."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from posttrain.errors import EXIT_OK

TEXTS = ("text", "table")  # for people; JSON has the figures
PATHS = ("run", "report", "model")


def put(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints ``result["text"]`` (or all of it as JSON, without the text) and leaves with ``result["exit_code"]``, if any."""
    if as_json:
        put_json({k: v for k, v in result.items() if k != "text"})
    elif result.get("text"):
        print(str(result["text"]).rstrip("\n"))
    code = int(result.get("exit_code", EXIT_OK))
    if code != EXIT_OK:
        raise typer.Exit(code)


def put_job(result: Mapping[str, Any], *, as_json: bool) -> None:
    """A finished job: its table and where its files lie."""
    if as_json:
        put_json({k: v for k, v in result.items() if not (k in TEXTS and isinstance(v, str))})
        return
    table = next((result[k] for k in TEXTS if isinstance(result.get(k), str)), "")
    lines = [f"{name + ':':8}{result[name]}" for name in PATHS if result.get(name)]
    if "minutes" in result and "peak_memory_bytes" in result:
        lines.append(f"time:   {result['minutes']:.1f} minutes, at most {result['peak_memory_bytes'] / 1e9:.1f} GB of memory")
    if result.get("already_finished"):
        lines.append("The run had finished before; nothing was left to do.")
    print("\n".join(x for x in (table.rstrip("\n"), *lines) if x))


def put_json(value: Any) -> None:
    """One JSON document; nan and inf, which JSON lacks, become null."""
    json.dump(_finite(value), sys.stdout, indent=1, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value

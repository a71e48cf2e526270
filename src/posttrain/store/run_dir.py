"""A run directory: everything a run said, on disk, append-only.

    options.toml            resolved options, secrets redacted
    run.json                versions, host, seed, status (running, interrupted, finished)
    commits.jsonl           what is done: one forced line per step; the only word on where a resumed run goes on
    metrics.jsonl           one row per stage and step
    events.jsonl            what happened, with stage timings
    trajectories/STAGE.jsonl every attempt, whole
    results.json            the final table
    checkpoints/  model/    weights
    refused/                batches that a training step refused, whole

Rows carry ``stage`` and ``step``. A step that was not committed before a kill is marked (never deleted) by ``rewind``,
readers skip its rows, and the resumed run writes them anew: nothing is lost that was reported, nothing is doubled.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from posttrain.errors import InvalidRun, UsageError
from posttrain.store.host import describe
from posttrain.store.jsonl import Log, write_whole
from posttrain.store.lock import Lock
from posttrain.store.records import decode, encode
from posttrain.types import Trajectory

_STAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_FOLDERS = ("trajectories", "checkpoints", "model")
_BEGUN = {"lock", *_FOLDERS, "options.toml", ".options.toml.new", ".run.json.new"}  # all that stands before there is a run.json


class RunDir:
    """One run on disk. ``create`` and ``open(write=True)`` hold its lock until ``close`` (or the end of ``with``)."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        self.writable = writable
        self.repairs: list[str] = []  # what a kill had broken and ``open`` mended, one sentence each
        self._lock = Lock(path / "lock")
        self._logs: dict[str, Log] = {}
        self._commits: list[dict[str, Any]] | None = None
        self._was_there = path.exists()

    @classmethod
    def create(cls, path: str | Path, options: Mapping[str, Any]) -> RunDir:
        """A new run in a new or empty directory, or one in which ``create`` was killed.

        Raises ``UsageError`` where a run exists already or the directory holds anything else, ``HostError`` where the disk
        refuses.
        """
        from posttrain.options import redact, to_toml

        path = Path(path)
        if (path / "run.json").exists():
            raise UsageError(
                f"{path} already holds a run; go on with it by 'posttrain resume {path}', or choose another directory with --out"
            )
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file, and a run is a directory; choose another place with --out")
        foreign = _foreign(path)
        if foreign:
            raise UsageError(
                f"{path} holds {foreign!r}, which is no part of a run, and a run has its directory to itself; "
                "name a new or empty one with --out"
            )
        run = cls(path, writable=True)
        _make(path)
        run._lock.acquire()
        for folder in _FOLDERS:
            _make(path / folder)
        shown = redact(dict(options))
        write_whole(path / "options.toml", to_toml(shown))
        seed = options.get("seed", 0)
        run._write_info({**describe(), "seed": seed, "status": "running", "started": time.time()})
        return run

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> RunDir:
        """An existing run, to read; ``write=True`` takes the lock, mends what a kill broke and rewinds to the last commits.

        Raises ``UsageError`` where there is no run, or where another process writes it.
        """
        path = Path(path)
        if not (path / "run.json").is_file():
            raise UsageError(
                f"{path} holds no run (there is no {path / 'run.json'}); give the directory that 'posttrain run' printed"
            )
        run = cls(path, writable=write)
        if write:
            run._lock.acquire()
            run._recover()
        return run

    # What is known about the run

    @property
    def info(self) -> dict[str, Any]:
        """run.json: versions, cpu, threads, seed, status, times in seconds since 1970."""
        try:
            data = json.loads((self.path / "run.json").read_text())
        except (OSError, ValueError) as error:
            raise InvalidRun(f"{self.path / 'run.json'} cannot be read ({error}); restore it from a copy") from error
        if not isinstance(data, dict) or "status" not in data:
            raise InvalidRun(f"{self.path / 'run.json'} holds no status of a run; restore it from a copy")
        return data

    @property
    def status(self) -> str:
        """``running`` (or killed while running), ``interrupted`` or ``finished``."""
        return str(self.info["status"])

    @property
    def options(self) -> dict[str, Any]:
        """The resolved options, secrets redacted."""
        import tomllib

        try:
            return tomllib.loads((self.path / "options.toml").read_text())
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{self.path / 'options.toml'} cannot be read ({error}); mend it or restore it from a copy"
            ) from error

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go, one directory each."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """Where the final model goes, in Hugging Face format."""
        return self.path / "model"

    def note(self, **values: Any) -> None:
        """Adds to run.json, for what is decided once and kept: calibrated step counts, content hashes."""
        self._write_info({**self.info, **values})

    def set_status(self, status: str) -> None:
        """Says where the run stands: running, interrupted or finished."""
        if status not in ("running", "interrupted", "finished"):
            raise ValueError(f"status {status!r}; a run is running, interrupted or finished")
        extra = {"ended": time.time()} if status != "running" else {}
        self.note(status=status, **extra)

    # Writing

    def write_metrics(self, stage: str, step: int, metrics: Mapping[str, Any]) -> None:
        """One row of figures; nan and inf are written as text and read back as numbers."""
        self._log("metrics").append([{"stage": _stage(stage), "step": step, "time": time.time(), **_finite(metrics)}])

    def write_trajectories(self, stage: str, step: int, trajectories: Sequence[Trajectory]) -> None:
        """Whole attempts, readable again bit for bit."""
        rows = [{"stage": _stage(stage), "step": step, "trajectory": encode(t)} for t in trajectories]
        self._log(f"trajectories/{stage}").append(rows)

    def write_event(self, **event: Any) -> None:
        """Something that happened: ``write_event(kind="retry", stage="rl", step=3, what="attempt ...", seconds=1.2)``."""
        self._log("events").append([{"time": time.time(), **_finite(event)}])

    def commit(self, stage: str, step: int, result: Mapping[str, Any] | None = None, checkpoint: str | None = None) -> None:
        """The step is done: all of its rows are forced onto the disk, then one line says so. Only this counts on resume."""
        log = self._log("commits")
        for other in self._logs.values():
            if other is not log:
                other.sync()
        row: dict[str, Any] = {"stage": _stage(stage), "step": step, "time": time.time()}
        if result is not None:
            row["result"] = _finite(result)
        if checkpoint is not None:
            row["checkpoint"] = str(checkpoint)
        log.append([row])
        log.sync()
        self.commits().append(json.loads(json.dumps(row)))

    def rewind(self, stage: str, step: int | None) -> int:
        """Undoes rows of ``stage`` after ``step`` (None: all) by marking them; in how many files.

        ``open(write=True)`` does it for rows of uncommitted steps; call it to step back to an older checkpoint.
        """
        names = [
            "commits",
            "metrics",
            "events",
            f"trajectories/{_stage(stage)}",
        ]  # commits first: a kill in between is then redone
        marked = sum(self._log(name).rewind(stage, step) for name in names)
        self._commits = None
        return marked

    def write_results(self, results: Mapping[str, Any]) -> Path:
        """The final table, in one go."""
        self._check_writable()
        path = self.path / "results.json"
        write_whole(path, json.dumps(_finite(results), indent=1, ensure_ascii=False) + "\n")
        return path

    # Reading

    def commits(self) -> list[dict[str, Any]]:
        """Commits that stand, in order: stage, step, time, and result or checkpoint where given."""
        if self._commits is None or not self.writable:
            self._commits = list(self._reader("commits").rows())
        return self._commits

    def last_commit(self, stage: str) -> dict[str, Any] | None:
        """The newest commit of a stage."""
        return next((c for c in reversed(self.commits()) if c["stage"] == stage), None)

    def result(self, stage: str) -> dict[str, Any] | None:
        """What was committed at the end of a stage; None while it has not ended."""
        return next((_numbers(c["result"]) for c in reversed(self.commits()) if c["stage"] == stage and "result" in c), None)

    def results(self) -> dict[str, Any]:
        """The final table; {} before there is one."""
        path = self.path / "results.json"
        return dict(_numbers(json.loads(path.read_text()))) if path.is_file() else {}

    def metrics(self, stage: str | None = None) -> list[dict[str, Any]]:
        """Rows of figures that stand, in order."""
        return [_numbers(r) for r in self._reader("metrics").rows() if stage is None or r["stage"] == stage]

    def events(self) -> Iterator[dict[str, Any]]:
        """Events that stand, in order."""
        return self._reader("events").rows()

    def stages(self) -> list[str]:
        """Stages that stored trajectories, in the order in which they first committed, then by name."""
        seen = list(dict.fromkeys(c["stage"] for c in self.commits()))
        stored = {p.stem if p.suffix == ".jsonl" else p.name for p in (self.path / "trajectories").glob("*.jsonl")}
        return [s for s in seen if s in stored] + sorted(stored - set(seen))

    def trajectories(self, stage: str | None = None) -> list[Trajectory]:
        """Attempts that stand, exactly as written. ``trajectory_rows`` reads them one by one."""
        return [t for _, _, t in self.trajectory_rows(stage)]

    def trajectory_rows(self, stage: str | None = None) -> Iterator[tuple[str, int, Trajectory]]:
        """(stage, step, attempt) of attempts that stand."""
        for name in [stage] if stage is not None else self.stages():
            for row in self._reader(f"trajectories/{_stage(name)}").rows():
                yield row["stage"], row["step"], decode(row["trajectory"])

    def trajectory(self, trajectory_id: str, stage: str | None = None) -> Trajectory:
        """One attempt by its id, the newest where several stages have it. Raises ``UsageError`` where there is none."""
        found = None
        for _, _, one in self.trajectory_rows(stage):
            if one.id == trajectory_id:
                found = one
        if found is None:
            raise UsageError(f"{self.path} holds no trajectory {trajectory_id!r}" + (f" of stage {stage!r}" if stage else ""))
        return found

    # Ending

    def discard_unstarted(self) -> None:
        """Removes what ``create`` made of a run that failed before it wrote any row; one that holds a row stays."""
        logs = [*self.path.glob("*.jsonl"), *self.path.glob("trajectories/*.jsonl")]
        if any(p.stat().st_size for p in logs):
            return
        for path in (*logs, *(self.path / name for name in ("run.json", *sorted(_BEGUN)))):
            with contextlib.suppress(OSError):  # what is not empty now is not ours
                path.rmdir() if path.is_dir() else path.unlink()
        if not self._was_there:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def close(self) -> None:
        """Closes files and gives the lock back."""
        for log in self._logs.values():
            log.close()
        self._lock.release()
        self.writable = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """A run that leaves by an error is ``interrupted``; one that does not keeps the status it set."""
        try:
            if self.writable and error is not None and self.status == "running":
                self.set_status("interrupted")
        finally:
            self.close()

    # Inside

    def _recover(self) -> None:
        names = [
            "commits",
            "metrics",
            "events",
            *(f"trajectories/{p.stem}" for p in sorted((self.path / "trajectories").glob("*.jsonl"))),
        ]
        self.repairs = [said for name in names if (said := self._log(name).repair())]
        stages = {str(row["stage"]) for name in names for row in self._log(name).rows() if "stage" in row and "step" in row}
        for stage in sorted(stages):
            last = self.last_commit(stage)
            if self.rewind(stage, None if last is None else last["step"]):
                step = "its start" if last is None else f"step {last['step']}"
                self.repairs.append(f"stage {stage}: rows after {step} were not committed and are done again")
        if self._lock.took_over:
            self.repairs.append(f"the lock of process {self._lock.took_over}, which died, was taken over")
        if self.status != "finished":
            self.set_status("running")
        for said in self.repairs:
            self.write_event(kind="repaired", what=said)

    def _write_info(self, info: Mapping[str, Any]) -> None:
        self._check_writable()
        write_whole(self.path / "run.json", json.dumps(info, indent=1) + "\n")

    def _log(self, name: str) -> Log:
        self._check_writable()
        return self._reader(name)

    def _reader(self, name: str) -> Log:
        if name not in self._logs:
            self._logs[name] = Log(self.path / f"{name}.jsonl")
        return self._logs[name]

    def _check_writable(self) -> None:
        if not self.writable:
            raise UsageError(f"{self.path} is open for reading only; open it with RunDir.open(path, write=True)")


def _foreign(path: Path) -> str:
    """What a directory holds that a ``create`` which was killed did not make; "" where there is nothing such."""
    held = {p.name: p for p in path.iterdir()} if path.exists() else {}
    strange = sorted(n for n, p in held.items() if n not in _BEGUN or (n in _FOLDERS and (not p.is_dir() or any(p.iterdir()))))
    if held and "lock" not in held:  # the first that create makes
        strange += sorted(held)
    return strange[0] if strange else ""


def _make(path: Path) -> None:
    from posttrain.store.jsonl import disk_error

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(path, 4096, error) from error


def _stage(name: str) -> str:
    if not _STAGE.fullmatch(name):
        raise ValueError(f"stage {name!r} becomes a file's name: letters, digits, '.', '_' and '-' only")
    return name


def _finite(value: Any) -> Any:
    """JSON's numbers are finite; the others become "nan", "inf", "-inf". Scalars of numpy and torch become numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(v) for v in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item") and callable(value.item):
        return _finite(value.item())
    return value


def _numbers(value: Any) -> Any:
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, dict):
        return {k: _numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return value

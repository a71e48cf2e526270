"""posttrain: from a base model to one that finishes tasks.

    import posttrain

    result = posttrain.run("quickstart", minutes=3)
    result = posttrain.run("my_data.toml", data="rows.jsonl", reward="reward.py", train={"lr": 2e-5})
    result = posttrain.resume("runs/quickstart-20260101-120000")

Importing it loads nothing heavy; the building blocks are modules of their own (``posttrain.losses.clipped`` ...).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from posttrain.progress import Progress
    from posttrain.store.run_dir import RunDir

__version__ = "0.1.0"
__all__ = ["__version__", "resume", "run"]


def _add_in_one_order() -> None:
    """Has MKL add the terms of a matrix product in one order, however many rows and threads (its strict reproducible mode).

    Otherwise it picks the order by the shape, and an answer in ``exact`` would depend on what else is sampled. It costs
    nothing on Intel, nor on AMD's CPUs without AVX-512; those with it would fall back to code several times slower, and
    are left alone. MKL reads the variable at its first product, so this comes with the import; one already set stays.
    """
    try:
        with open("/proc/cpuinfo") as file:
            text = file.read(10_000)
    except OSError:
        return
    words = set(text.split())
    wide = "avx512f" in words
    if "avx2" in words and ("GenuineIntel" in words or ("AuthenticAMD" in words and not wide)):
        os.environ.setdefault("MKL_CBWR", "AVX512,STRICT" if wide else "AVX2,STRICT")


_add_in_one_order()


def run(
    source: str | Path | Mapping[str, Any],
    *overrides: str,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Starts a job and returns its results when it is done; ``result["run"]`` is the run's directory.

    ``source`` is a shipped recipe's name, a ``.toml`` file, or the options themselves; ``overrides`` are texts as on the
    command line (``"train.lr=1e-5"``), ``options`` the same from Python (``train__lr=1e-5``). ``out`` is the run's directory
    (default: a new one under ``runs/``). Works in a notebook too. Raises UsageError for options that cannot be, before any
    directory is made; InvalidRun; HostError; and Interrupted after Ctrl-C, with the line that resumes.
    """
    from collections.abc import Mapping
    from pathlib import Path

    from posttrain.errors import UsageError
    from posttrain.options import load, recipe, resolved
    from posttrain.store.run_dir import RunDir

    table = load(source, overrides, **options)
    job = recipe(table, "options" if isinstance(source, Mapping) else str(source))
    path = Path(out).expanduser() if out is not None else _free("options" if isinstance(source, Mapping) else str(source))
    made = RunDir.create(path, resolved(job, table["recipe"]))
    try:
        with made as opened:
            return _work(job, opened, progress)
    except UsageError:
        made.discard_unstarted()  # so that the corrected command can use the same directory
        raise


def resume(run: str | Path, *, progress: Progress | None = None) -> dict[str, Any]:
    """Goes on with an interrupted or killed run from its last committed step; a finished one returns its results at once."""
    from pathlib import Path

    from posttrain.errors import UsageError
    from posttrain.options import REDACTED, load, recipe
    from posttrain.store.run_dir import RunDir

    path = Path(run).expanduser()
    opened = RunDir.open(path)
    if opened.status == "finished":
        return {**opened.results(), "run": str(path), "already_finished": True}
    table = opened.options
    if "recipe" not in table:
        raise UsageError(f"{path / 'options.toml'} names no recipe; restore it from a copy, or start a new run")
    if REDACTED in str(table):
        raise UsageError(f"{path / 'options.toml'} has secrets blanked, so the run cannot go on by itself; write them back there")
    job = recipe(load(table), str(path / "options.toml"))
    with RunDir.open(path, write=True) as opened:
        return _work(job, opened, progress)


def _work(job: Any, opened: RunDir, progress: Progress | None) -> dict[str, Any]:
    """The recipe's own work, in a thread where an event loop runs already, as in a notebook."""
    import asyncio

    from posttrain.errors import Interrupted
    from posttrain.progress import Progress

    with progress if progress is not None else Progress() as shown:
        for mended in opened.repairs:
            shown.log(f"resuming: {mended}")
        try:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                result = job.run(opened, shown)
            else:
                result = _in_thread(lambda: job.run(opened, shown))
        except KeyboardInterrupt:
            done = opened.commits()
            last = f"stage {done[-1]['stage']}, step {done[-1]['step']}" if done else ""
            saved = f"all is saved up to {last}" if last else "no step was finished yet"
            raise Interrupted(f"interrupted; {saved}. Go on with: posttrain resume {opened.path}") from None
    return {**result, "run": str(opened.path)}


def _in_thread(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Runs ``work`` in a thread; the notebook's stop button, which interrupts this one, is passed on to it."""
    import ctypes
    import threading

    result: list[dict[str, Any]] = []
    raised: list[BaseException] = []

    def body() -> None:
        try:
            result.append(work())
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=body, name="posttrain-run")
    thread.start()
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt))
    if raised:
        raise raised[0]
    return result[0]


def _free(source: str) -> Path:
    """A new run's directory, ``runs/<recipe>-<local time>``; a second one within the second gets a number."""
    import time
    from pathlib import Path

    base = Path("runs") / f"{Path(source).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    numbered = (base.with_name(f"{base.name}-{n}") for n in range(2, 1000))
    return base if not base.exists() else next(p for p in numbered if not p.exists())

"""Sandboxes of the namespaces backend: latency, throughput, making, rollback, abort, and many alive - against bare processes.

Times are wall milliseconds of one quiet machine; what is comparable elsewhere is the ratio to a bare ``subprocess`` and, where
they are there, to bubblewrap and to swe-rex's local runtime (``make bench-peers``), in the same run. ``holds`` is whether every
bar is met.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from posttrain.sandboxes._base import Limits, Needs, Sandbox
from posttrain.sandboxes.namespaces import Namespaces
from posttrain.sandboxes.namespaces.host import NamespaceHost

NAME = "sandbox"
BARS = {
    "python_p50_ms": 3.0,
    "python_p99_ms": 15.0,
    "true_p50_ms": 5.0,
    "create_p50_ms": 25.0,
    "abort_ms": 50.0,
    "many_exec_p99_ms": 30.0,
    "many_resident_mib": 10.0,
    "many_teardown_s": 2.0,
    "snapshot_p50_ms": 5.0,
    "restore_p50_ms": 5.0,
    "fork_ready_16_ms": 100.0,
}
SNIPPETS_A_SECOND = 600.0
SMALL = Needs(limits=Limits(memory=256, disk=256, pids=32, files=20_000))


def quantile(times: list[float], q: float) -> float:
    """In milliseconds, of seconds."""
    return sorted(times)[min(len(times) - 1, int(q * len(times)))] * 1e3


async def timed(work: Callable[[], Awaitable[Any]], times: int) -> list[float]:
    """Seconds of each of ``times`` runs, one after the other."""
    out = []
    for _ in range(times):
        start = time.perf_counter()
        await work()
        out.append(time.perf_counter() - start)
    return out


async def latency(host: NamespaceHost) -> dict[str, float]:
    """One sandbox, one execution at a time; and two sandboxes at once for throughput."""
    made = await timed(lambda: _made_and_gone(host), 30)
    box = await host.create(SMALL)
    await timed(lambda: box.exec(python="print(1)"), 20)
    python = await timed(lambda: box.exec(python="print(1)"), 500)
    true = await timed(lambda: box.exec(["/bin/true"]), 300)
    boxes = [box, await host.create(SMALL)]
    start = time.perf_counter()
    await asyncio.gather(*(timed(lambda b=b: b.exec(python="print(1)"), 600) for b in boxes))  # type: ignore[misc]
    rate = 1200 / (time.perf_counter() - start)
    for b in boxes:
        await b.destroy()
    return {
        "create_p50_ms": quantile(made, 0.5),
        "python_p50_ms": quantile(python, 0.5),
        "python_p99_ms": quantile(python, 0.99),
        "true_p50_ms": quantile(true, 0.5),
        "true_p99_ms": quantile(true, 0.99),
        "snippets_a_second": rate,
    }


async def _made_and_gone(host: NamespaceHost) -> None:
    await (await host.create(SMALL)).destroy()


async def rollback(host: NamespaceHost) -> dict[str, float]:
    """A workspace of 5,000 files and 100 MiB; a delta of 100 files and 2 MiB before each snapshot."""
    box = await host.create(Needs(limits=Limits(memory=1024, disk=400, pids=32, files=40_000)))
    fill = "import os\nfor i in range(50): os.mkdir(f'd{i}')\n"
    fill += "for i in range(5000): open(f'd{i % 50}/f{i}', 'wb').write(bytes(20971))"
    assert (await box.exec(python=fill)).status == "ok"
    base = await box.snapshot()
    delta = "import os\nfor i in range(100): open(f'd{i % 50}/f{i}', 'wb').write(os.urandom(20971))"
    out: dict[str, list[float]] = {"snapshot": [], "restore": [], "fork": []}
    for _ in range(9):
        await box.exec(python=delta)
        taken, seconds = await _once(box.snapshot())
        out["snapshot"].append(seconds)
        out["restore"].append((await _once(box.restore(base)))[1])
        fork, seconds = await _once(box.fork(taken))
        out["fork"].append(seconds)
        await fork.destroy()
    kept = await box.keep(["/bin/cat"])
    live = []
    for _ in range(9):
        await box.exec(python=delta)
        live.append((await _once(box.snapshot()))[1])
    await kept.end()
    start = time.perf_counter()
    children = await asyncio.gather(*(box.fork(base) for _ in range(16)))
    ready = time.perf_counter() - start
    for child in (*children, box):
        await child.destroy()
    return {f"{k}_p50_ms": quantile(v, 0.5) for k, v in (out | {"snapshot_live": live}).items()} | {
        "fork_ready_16_ms": ready * 1e3
    }


async def _once(work: Awaitable[Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = await work
    return result, time.perf_counter() - start


async def storm(host: NamespaceHost) -> dict[str, float]:
    """Forty busy processes, until all are dead and reaped."""
    times = []
    for _ in range(5):
        box = await host.create(Needs(limits=Limits(pids=64, cpu=60, wall=120.0)))
        busy = asyncio.ensure_future(
            box.exec(python="import os\nfor _ in range(40):\n    if not os.fork():\n        while True: pass\nos.wait()")
        )
        while (await box.stats())["pids"] < 41:
            await asyncio.sleep(0.02)
        times.append((await _once(box.abort()))[1])
        await busy
        await box.destroy()
    return {"abort_ms": statistics.median(times) * 1e3}


async def many(host: NamespaceHost, number: int) -> dict[str, float]:
    """``number`` sandboxes alive at once."""
    needs = Needs(limits=Limits(memory=64, disk=16, pids=16, files=1000))
    start = time.perf_counter()
    boxes: list[Sandbox] = [await host.create(needs) for _ in range(number)]
    made = (time.perf_counter() - start) / number
    times: list[float] = []
    for box in boxes:
        times += await timed(lambda b=box: b.exec(python="print(1)"), 2)  # type: ignore[misc]
    resident = statistics.mean([(await box.stats())["memory"] for box in boxes])
    start = time.perf_counter()
    await asyncio.gather(*(box.destroy() for box in boxes))
    down = time.perf_counter() - start
    return {
        "many": number,
        "many_create_ms": made * 1e3,
        "many_exec_p99_ms": quantile(times, 0.99),
        "many_resident_mib": resident / 2**20,
        "many_teardown_s": down,
    }


REPOSITORY = {
    "stack.py": "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"
    "        self.items.append(item)\n\n    def pop(self):\n        return self.items.pop()\n",
    "test_stack.py": "import pytest\nfrom stack import Stack\n\n\n@pytest.mark.parametrize('n', range(20))\n"
    "def test_last_in_first_out(n):\n    s = Stack()\n    for i in range(n):\n        s.push(i)\n"
    "    assert [s.pop() for _ in range(n)] == list(reversed(range(n)))\n\n\ndef test_empty():\n"
    "    with pytest.raises(IndexError):\n        Stack().pop()\n",
}
PYTEST = ["-q", "-p", "no:cacheprovider", "."]


async def pytest_runs(site: str, number: int = 64) -> dict[str, float]:
    """Real runs of pytest over a small repository, two at a time: with ``number`` sandboxes alive, and as bare processes."""
    code = f"import sys\nsys.path[:0] = [{site!r}, '.']\nimport pytest\nsys.exit(pytest.main({PYTEST!r}))"
    async with Namespaces(readable=(site,)).open() as host:
        needs = Needs(limits=Limits(memory=256, disk=16, pids=16, files=1000, cpus=2.0))
        boxes = [await host.create(needs) for _ in range(number)]
        for box in boxes:
            for name, text in REPOSITORY.items():
                await box.write(name, text.encode())
        free = asyncio.Semaphore(2)

        async def one(box: Sandbox) -> None:
            async with free:
                result = await box.exec(python=code)
                assert result.status == "ok" and b"21 passed" in result.stdout, result

        start = time.perf_counter()
        await asyncio.gather(*(one(box) for box in boxes))
        here = number / (time.perf_counter() - start)
    with tempfile.TemporaryDirectory() as name:
        for file, text in REPOSITORY.items():
            (Path(name) / file).write_text(text)

        async def bare() -> None:
            async with free:
                line = [sys.executable, "-B", "-m", "pytest", *PYTEST]
                process = await asyncio.create_subprocess_exec(*line, cwd=name, stdout=subprocess.DEVNULL)
                assert await process.wait() == 0

        start = time.perf_counter()
        await asyncio.gather(*(bare() for _ in range(number)))
        there = number / (time.perf_counter() - start)
    return {"pytest_runs_a_second": here, "bare_pytest_runs_a_second": there}


SWEREX = """
import asyncio, json, sys, time
from swerex.deployment.local import LocalDeployment
from swerex.runtime.abstract import Command
async def main():
    local = LocalDeployment()
    await local.start()
    out = {}
    for name, line in (("swerex_true", ["/bin/true"]), ("swerex", [sys.argv[1], "-I", "-S", "-c", "print(1)"])):
        times = []
        for _ in range(60):
            start = time.perf_counter()
            assert (await local.runtime.execute(Command(command=line))).exit_code == 0
            times.append(time.perf_counter() - start)
        out[name + "_p50_ms"] = sorted(times)[30] * 1e3
    await local.stop()
    print(json.dumps(out))
asyncio.run(main())
"""


def swerex() -> dict[str, float]:
    """swe-rex's local runtime, which isolates nothing, from its own environment; nothing where that is not made."""
    python = Path(__file__).parents[1] / ".venv-peers" / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", "import swerex"], capture_output=True).returncode:
        return {}
    done = subprocess.run([python, "-c", SWEREX, sys.executable], check=True, capture_output=True, text=True, timeout=120)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    return dict(json.loads(line))


def peers() -> dict[str, float]:
    """A bare interpreter, and one behind bubblewrap, as a program that uses neither pool nor fork would start them."""
    lines = {"bare": [sys.executable, "-I", "-S", "-c", "print(1)"]}
    if shutil.which("bwrap"):
        lines["bubblewrap"] = [
            "bwrap",
            "--unshare-all",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            *lines["bare"],
        ]
    out = {}
    for name, line in lines.items():
        times = []
        for _ in range(40):
            start = time.perf_counter()
            subprocess.run(line, check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        out[f"{name}_p50_ms"] = quantile(times, 0.5)
    return out


async def measure(number: int) -> dict[str, Any]:
    """All figures of one run."""
    async with Namespaces().open() as host:
        out: dict[str, Any] = {"level": host.level}
        cpu = time.process_time()
        for part in (latency, rollback, storm):
            out |= await part(host)
        return out | await many(host, number) | {"controller_cpu_seconds": time.process_time() - cpu}


def main() -> None:
    """Prints one line, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--many", type=int, default=500)
    options = parser.parse_args()
    found = peers() | swerex() | asyncio.run(measure(options.many))
    if (spec := importlib.util.find_spec("pytest")) and spec.origin:
        found |= asyncio.run(pytest_runs(str(Path(spec.origin).resolve().parents[1])))
    missed = [f"{name} {found[name]:.2f} > {bar:g}" for name, bar in BARS.items() if found[name] > bar]
    if found["snippets_a_second"] < SNIPPETS_A_SECOND:
        missed.append(f"snippets_a_second {found['snippets_a_second']:.0f} < {SNIPPETS_A_SECOND:g}")
    result = {
        "name": NAME,
        "ratio": found["bare_p50_ms"] / found["python_p50_ms"],
        "bar": 1.0,
        "holds": not missed,
        "missed": missed,
    } | found
    print(
        json.dumps(result)
        if options.json
        else "\n".join(f"{k:24} {v:.2f}" if isinstance(v, float) else f"{k:24} {v}" for k, v in result.items())
    )


if __name__ == "__main__":
    main()

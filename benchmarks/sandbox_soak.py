"""Sandboxes made, used and ended for ``--minutes``, 16 at a time; prints the supervisor's memory over time.

``holds`` is whether its memory after the first tenth grows by less than 5 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path

from posttrain.sandboxes._base import Limits, Needs
from posttrain.sandboxes.namespaces import Namespaces
from posttrain.sandboxes.namespaces.host import NamespaceHost

NEEDS = Needs(limits=Limits(memory=64, disk=8, pids=8, files=500, cpus=0.5, cpu=1, wall=10.0))
AT_ONCE = 16
GROWTH = 1.05


def resident(pid: int) -> float:
    """MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def supervisor() -> int:
    """The child of this process that is one."""
    pids = {int(p) for t in Path("/proc/self/task").glob("*/children") for p in t.read_text().split()}
    return next(p for p in pids if b"supervisor.main" in Path(f"/proc/{p}/cmdline").read_bytes())


async def soak(minutes: float) -> tuple[list[tuple[float, float]], int]:
    """((seconds, MiB) of the supervisor, how many sandboxes there were)."""
    seen: list[tuple[float, float]] = []
    made = 0
    began = time.monotonic()
    until = began + 60 * minutes

    async def work(host: NamespaceHost) -> None:
        nonlocal made
        while time.monotonic() < until:
            box = await host.create(NEEDS)
            assert (await box.exec(python="open('x', 'w').write('1' * 1000); print(1)")).status == "ok"
            fork = await box.fork(await box.snapshot())
            await fork.destroy()
            await box.destroy()
            made += 2

    async with Namespaces().open() as host:
        pid = supervisor()

        async def watch() -> None:
            while time.monotonic() < until:
                await asyncio.sleep(min(10.0, 3 * minutes))
                seen.append((time.monotonic() - began, resident(pid)))
                print(f"{seen[-1][0]:7.0f} s  {seen[-1][1]:7.2f} MiB  {made} sandboxes", flush=True)

        await asyncio.gather(watch(), *(work(host) for _ in range(AT_ONCE)))
    return seen, made


def main() -> None:
    """Prints the memory as it goes, then one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    seen, made = asyncio.run(soak(parser.parse_args().minutes))
    settled = seen[len(seen) // 10 :]
    grown = settled[-1][1] / settled[0][1]
    print(json.dumps({"name": "sandbox_soak", "sandboxes": made, "ratio": grown, "bar": GROWTH, "holds": grown < GROWTH}))


if __name__ == "__main__":
    main()

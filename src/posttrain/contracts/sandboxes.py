"""The gate every sandbox backend passes: each way in which a program can end has its status; files are as written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from posttrain.errors import PosttrainError, SandboxLost, SandboxUnavailable, UsageError
from posttrain.sandboxes._base import Backend, Host, Limits, Needs, Sandbox

LIMITS = Limits(memory=128, disk=32, pids=32, cpu=1, wall=4.0, output=100_000, files=2000)
NEEDS = Needs(level="T1", limits=LIMITS)
ENDS = (
    ("print(6 * 7)", "ok"),
    ("raise SystemExit(3)", "nonzero"),
    ("1 / 0", "nonzero"),
    ("import os; os.kill(os.getpid(), 11)", "signal"),
    ("while True: pass", "timeout_cpu"),
    ("import time; time.sleep(100)", "timeout_wall"),
    ("x = []\nwhile True: x.append(bytearray(1 << 24))", "memory"),
    ("import os, time\nwhile True:\n    if not os.fork(): time.sleep(9)", "pids"),
    # refused at once, or seen by a watch while it waits
    ("import time\nfor i in range(5): open(f'f{i}', 'wb').write(bytes(8 << 20))\ntime.sleep(100)", "disk"),
    ("while True: print('x' * 1000)", "output_limit"),
)
ABORT = 0.5  # seconds; what must hold on a quiet machine is measured by the benchmark


def check(plugin: Backend) -> list[str]:
    """What is wrong with a backend, one sentence each; empty when it passes. Not to be called inside an event loop.

    Raises SandboxUnavailable where this machine cannot have it at all.
    """
    return asyncio.run(_all(plugin))


async def _all(plugin: Backend) -> list[str]:
    bad: list[str] = []
    async with plugin.open() as host:
        for part in (_ends, _streams, _files, _snapshots, _kept, _aborted, _refusals):
            try:
                bad += [fault async for fault in part(host)]
            except SandboxUnavailable:
                raise
            except (PosttrainError, OSError, AssertionError) as error:
                bad.append(f"{part.__name__.strip('_')}: {type(error).__name__}: {error}")
    return bad


async def _ends(host: Host) -> AsyncIterator[str]:
    """Every status, each followed by a program that finds the sandbox as good as new."""
    box = await host.create(NEEDS)
    for program, status in ENDS:
        result = await box.exec(python=program)
        if result.status != status:
            yield f"{program!r} ends with {result.status} ({result.detail}), not {status}"
        if status == "disk":
            await box.exec(["/bin/sh", "-c", "rm -f f*"])
        after = await box.exec(python="print('well')")
        if after.stdout != b"well\n":
            yield f"after {program!r} a program ends with {after.status} ({after.detail})"
    await box.destroy()


async def _streams(host: Host) -> AsyncIterator[str]:
    """Input, both outputs, the environment, arguments and the private descriptors."""
    box = await host.create(NEEDS)
    result = await box.exec(["/bin/sh", "-c", 'cat; echo "$A $1" >&2', "sh", "b"], stdin=b"in\xff\x00", env={"A": "a"})
    if (result.stdout, result.stderr) != (b"in\xff\x00", b"a b\n"):
        yield f"a shell gives {result.stdout!r} and {result.stderr!r}"
    result = await box.exec(python="import os; os.write(4, os.read(3, 99)[::-1])", private=b"abc")
    if result.result != b"cba":
        yield f"the private descriptors give {result.result!r}"
    result = await box.exec(["/no/such/program"])
    if (result.status, result.exit_code) != ("nonzero", 127):
        yield f"a program that is not there ends with {result.status}, {result.exit_code}"
    await box.destroy()


async def _files(host: Host) -> AsyncIterator[str]:
    """Transfers, and the links that they do not follow."""
    box = await host.create(NEEDS)
    content = bytes(range(256)) * 1000
    await box.write("a/b/c.bin", content)
    if await box.read("a/b/c.bin") != content:
        yield "a file does not come back as it was written"
    await box.exec(["/bin/sh", "-c", "ln -s /etc/passwd link; ln -s / root; mkfifo fifo; mkdir dir"])
    for path in ("link", "root/etc/passwd", "fifo", "dir", "../etc/passwd", "/etc/passwd", "missing"):
        try:
            found = await box.read(path)
        except OSError:
            continue
        yield f"reading {path} gives {found[:20]!r}"
    for path in ("link", "root/tmp/x", "dir"):
        try:
            await box.write(path, b"x")
        except OSError:
            continue
        yield f"writing {path} goes through a link"
    await box.destroy()


async def _snapshots(host: Host) -> AsyncIterator[str]:
    """Files only; a fork and its origin do not see each other."""
    box = await host.create(NEEDS)
    await box.write("kept", b"1")
    await box.write("changed", b"1")
    taken = await box.snapshot()
    await box.write("changed", b"2")
    await box.exec(["/bin/rm", "kept"])
    fork = await box.fork(taken)
    if (await fork.read("kept"), await fork.read("changed")) != (b"1", b"1"):
        yield "a fork does not hold the snapshot's files"
    await fork.write("changed", b"3")
    if await box.read("changed") != b"2":
        yield "a fork writes into its origin"
    await box.restore(taken)
    if (await box.read("kept"), await box.read("changed")) != (b"1", b"1"):
        yield "a restore does not bring the snapshot's files back"
    await fork.destroy()
    await box.destroy()


async def _kept(host: Host) -> AsyncIterator[str]:
    """A shell that is kept lives on beside other programs, and dies on restore."""
    box = await host.create(NEEDS)
    shell = await box.keep(["/bin/sh"])
    await shell.send(b"x=5; echo $x\n")
    if (first := await anext(aiter(shell.output()))) != b"5\n":
        yield f"a kept shell says {first!r}"
    await box.exec(python="print(1)")
    await shell.send(b"touch made; echo $((x + 1))\n")
    if (second := await anext(aiter(shell.output()))) != b"6\n":
        yield f"a kept shell forgets: {second!r}"
    taken = await box.snapshot()
    await box.restore(taken)
    await box.read("made")
    if (end := await shell.end(2.0)).status == "ok":
        yield f"a kept shell survives a restore: {end.status}"
    await box.destroy()


async def _aborted(host: Host) -> AsyncIterator[str]:
    """A storm dies at once and says so; a sandbox that was aborted or destroyed is lost, not silent."""
    box = await host.create(replace(NEEDS, limits=replace(LIMITS, cpu=30, wall=60.0)))
    storm = asyncio.ensure_future(box.exec(python="import os\nfor _ in range(4): os.fork()\nwhile True: pass"))
    while (await box.stats()).get("pids", 20) < 16 and not storm.done():
        await asyncio.sleep(0.01)
    began = time.monotonic()
    await box.abort()
    if (took := time.monotonic() - began) > ABORT:
        yield f"an abort took {took:.2f} s"
    if (end := await storm).status != "aborted":
        yield f"what was aborted ends with {end.status}"
    if (later := await box.exec(python="1")).status not in ("aborted", "sandbox_lost"):
        yield f"an aborted sandbox runs a program: {later.status}"
    await box.destroy()


async def _refusals(host: Host) -> AsyncIterator[str]:
    """What cannot be is refused before anything runs."""
    box: Sandbox = await host.create(NEEDS)
    for argv, python in ((None, None), (["a\0b"], None), ([], None)):
        try:
            await box.exec(argv, python=python)
        except UsageError:
            continue
        yield f"exec({argv!r}, python={python!r}) is not refused"
    try:
        await box.restore("no such snapshot")
        yield "a restore to a snapshot that is not there is not refused"
    except UsageError:
        pass
    await box.destroy()
    try:
        await box.snapshot()
        yield "a destroyed sandbox takes a snapshot"
    except SandboxLost:
        pass

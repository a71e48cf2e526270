"""The Landlock backend beyond its contract: nobody else is hit, nothing survives, files are changed on request."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import doctor
from posttrain.errors import SandboxUnavailable, UsageError
from posttrain.sandboxes._base import Limits, Needs
from posttrain.sandboxes.landlock import Landlock
from posttrain.sandboxes.landlock.host import LandlockHost
from posttrain.sandboxes.namespaces import Namespaces
from posttrain.sandboxes.namespaces.inside import tree

SYSTEM_PYTHON = "/usr/bin/python3"
USER = 4242 if os.name == "posix" and os.geteuid() == 0 else None
NEEDS = Needs(level="T1", limits=Limits(memory=256, pids=40))
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not Path(SYSTEM_PYTHON).exists(), reason="needs Linux and a Python that all may read"
)


def with_host(body: Callable[[LandlockHost], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        async with Landlock(user=USER, interpreter=SYSTEM_PYTHON).open() as host:
            return await asyncio.wait_for(body(host), 60)

    return asyncio.run(main())


def descendants() -> list[int]:
    return [r.pid for r in tree.descendants(os.getpid()) if r.state != "Z"]


def test_a_signal_goes_to_descendants_only() -> None:
    child = subprocess.Popen(["/bin/sleep", "60"])
    other = subprocess.Popen(["/bin/sleep", "60"])
    assert not tree.strike(child.pid, other.pid, signal.SIGKILL), "it did not come from there"
    assert not tree.strike(os.getpid(), os.getpid(), signal.SIGKILL), "nor is one one's own descendant"
    assert not tree.strike(os.getpid(), os.getppid(), signal.SIGKILL)
    assert not tree.strike(os.getpid(), 1, signal.SIGKILL)
    assert other.poll() is None
    for process in (child, other):
        assert tree.strike(os.getpid(), process.pid, signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    assert not tree.strike(os.getpid(), child.pid, signal.SIGKILL), "it is gone"


STORM = """
import os, time
for _ in range(12):
    if not os.fork():
        os.setsid()
        os.fork()
        time.sleep(600)
        os._exit(0)
"""


def test_what_is_left_behind_dies_and_the_users_own_processes_live() -> None:
    mine = subprocess.Popen(["/bin/sleep", "600"], user=USER, group=USER)

    async def body(host: LandlockHost) -> tuple[float, float]:
        box, other = await host.create(NEEDS), await host.create(NEEDS)
        shell = await other.keep(["/bin/cat"])
        await box.exec(python=STORM)
        left = (await box.stats())["pids"]
        running = asyncio.create_task(box.exec(python=STORM + "time.sleep(600)"))
        await asyncio.sleep(0.3)
        await box.abort()
        assert (await running).status == "aborted"
        await shell.send(b"here")
        assert await anext(aiter(shell.output())) == b"here"
        return left, (await box.stats())["pids"]

    try:
        assert with_host(body) == (0, 0)
        assert mine.poll() is None
    finally:
        mine.kill()
        mine.wait()


@pytest.mark.parametrize("who", ["supervisor", "keeper"])
def test_a_killed_supervisor_or_keeper_leaves_no_program(who: str) -> None:
    before = set(descendants())

    async def body(host: LandlockHost) -> None:
        box = await host.create(NEEDS)
        running = asyncio.create_task(box.exec(python=STORM + "time.sleep(600)"))
        await asyncio.sleep(0.3)
        new = {r.pid: r.parent for r in tree.descendants(os.getpid()) if r.pid not in before}
        supervisor = next(pid for pid, parent in new.items() if parent == os.getpid())
        keeper = next(pid for pid, parent in new.items() if parent == supervisor)
        programs = set(new) - {supervisor, keeper}
        assert len(programs) > 12
        os.kill(supervisor if who == "supervisor" else keeper, signal.SIGKILL)
        assert (await running).status == "sandbox_lost"
        for _ in range(200):
            alive = [pid for pid in programs if (r := tree.row("/proc", pid)) and r.state not in "ZX"]
            if not alive:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{len(alive)} programs outlive their {who}")

    with_host(body)


def test_modes_and_times_of_its_own_files() -> None:
    program = """
import os, shutil, stat
open('a', 'w').write('#!/bin/sh\\necho ran\\n')
os.chmod('a', 0o755)
os.utime('a', (10, 20))
shutil.copy2('a', 'b')
fd = os.open('b', os.O_RDONLY); os.fchmod(fd, 0o4711)
s = os.stat('b')
print(oct(s.st_mode & 0o7777), s.st_mtime, flush=True)
os.execv('./a', ['a'])
"""

    async def body(host: LandlockHost) -> bytes:
        return (await (await host.create(NEEDS)).exec(python=program)).stdout

    assert with_host(body) == b"0o711 20.0\nran\n"


def test_files_that_are_shut_or_deep_are_copied_removed_and_counted() -> None:
    shut = "import os\nos.mkdir('d'); open('d/x', 'w').write('x'); os.chmod('d/x', 0); os.chmod('d', 0)"
    deep = "import os\nfor _ in range(150): os.mkdir('e'); os.chdir('e')"
    hidden = """
import os, time
files = [open(name, 'wb', buffering=0) for name in 'xy']
for name in 'xy': os.unlink(name)
for file in files: file.write(bytes(9 << 20))
time.sleep(20)
"""

    async def body(host: LandlockHost) -> tuple[bytes, str, str]:
        box = await host.create(Needs(level="T1", limits=Limits(disk=12)))
        await box.exec(python=shut)
        fork = await box.fork(await box.snapshot())
        found = (await fork.exec(python="import os; os.chmod('d', 0o700); print(open('d/x').read())")).stdout
        too_deep = (await fork.exec(python=deep)).status
        return found, too_deep, (await box.exec(python=hidden)).status

    assert with_host(body) == (b"x\n", "disk", "disk")
    assert not [p for p in Path("/tmp").glob("posttrain-landlock-*") if p.stat().st_uid == (USER or os.geteuid())]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="no limit on processes binds root"):
        Landlock(user=0)
    with pytest.raises(UsageError, match="absolute directories"):
        Landlock(readable=("data",))

    async def body() -> None:
        async with Landlock(user=USER, interpreter="/no/such/python").open():
            raise AssertionError

    with pytest.raises(SandboxUnavailable, match="give a Python that this user may read"):
        asyncio.run(body())


def test_doctor_shows_it_where_no_namespaces_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Namespaces) -> Any:
        raise SandboxUnavailable("user namespaces are off")

    whole = Landlock.open
    monkeypatch.setattr(Namespaces, "open", refuse)
    monkeypatch.setattr(Landlock, "open", lambda self: whole(Landlock(user=USER, interpreter=SYSTEM_PYTHON)))
    found, advice = doctor.sandboxes()
    assert isinstance(found, dict)
    assert (found["level"], found["runs"], found["no namespaces"]) == ("T1", "ok", "user namespaces are off")
    assert "tasks that ask for T2u" in advice[0]

"""The namespaces backend beyond its contract: what is lost, what dies, what is refused, and the same without await."""

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

from posttrain.errors import SandboxLost, SandboxUnavailable, UsageError
from posttrain.sandboxes._base import Limits, Needs
from posttrain.sandboxes.blocking import Blocking
from posttrain.sandboxes.namespaces import Namespaces
from posttrain.sandboxes.namespaces.host import NamespaceHost
from posttrain.sandboxes.shared import forget, in_sandbox, in_sandboxes

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


@pytest.fixture(autouse=True)
def no_shared_ones() -> None:
    """Supervisors are counted here."""
    forget()


def with_host(body: Callable[[NamespaceHost], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with Namespaces(**options).open() as host:
            return await asyncio.wait_for(body(host), 100)

    return asyncio.run(main())


def supervisors() -> set[int]:
    """Pids of living supervisors of this process."""
    out = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "supervisor.main"], capture_output=True, text=True).stdout
    return {int(pid) for pid in out.split()}


def test_a_killed_supervisor_is_a_lost_sandbox_and_nothing_survives() -> None:
    killed: list[int] = []

    async def body(host: NamespaceHost) -> None:
        box = await host.create()
        pid = int((await box.exec(python="import os; print(os.getpid())")).stdout)
        assert pid > 1
        running = asyncio.create_task(box.exec(python="import time; time.sleep(60)"))
        await asyncio.sleep(0.3)
        (supervisor,) = supervisors()
        killed.append(supervisor)
        os.kill(supervisor, signal.SIGKILL)
        result = await running
        assert result.status == "sandbox_lost"
        with pytest.raises(SandboxLost):
            await host.create()

    with_host(body)
    assert not supervisors()
    with_host(lambda host: host.create())
    assert not list(Path("/tmp").glob(f"posttrain-sandboxes-{killed[0]}-*")), "the next supervisor removes what a killed one left"


def test_all_sandboxes_end_with_the_controller(tmp_path: Path) -> None:
    """kill -9 of the process that made them."""
    script = tmp_path / "controller.py"
    script.write_text(
        "import asyncio\nfrom posttrain.sandboxes.namespaces import Namespaces\n"
        "async def main():\n    async with Namespaces().open() as host:\n        box = await host.create()\n"
        "        print('ready', flush=True)\n        await box.exec(['/bin/sleep', '97531'])\nasyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(100):
        if _sleepers():
            break
        os.sched_yield()
        subprocess.run(["true"], check=True)
    process.kill()
    process.wait()
    process.stdout.close()
    for _ in range(200):
        if not _sleepers():
            return
        subprocess.run(["true"], check=True)
    raise AssertionError("a program outlives its controller")


def _sleepers() -> bool:
    return subprocess.run(["pgrep", "-f", "sleep 97531"], capture_output=True).returncode == 0


def test_nothing_leaks_over_many_sandboxes() -> None:
    async def body(host: NamespaceHost) -> None:
        async def count() -> tuple[int, int, int]:
            (supervisor,) = supervisors()
            groups = [p for p in Path("/sys/fs/cgroup").glob("*/*") if p.name.startswith(f"posttrain-{supervisor}-")]
            mounts = len(Path(f"/proc/{supervisor}/mounts").read_text().splitlines())
            return len(os.listdir(f"/proc/{supervisor}/fd")) + len(os.listdir("/proc/self/fd")), mounts, len(groups)

        async def one() -> None:
            box = await host.create()
            await box.exec(python="import os; os.fork() or os.setsid()")
            snapshot = await box.snapshot()
            fork = await box.fork(snapshot)
            await box.destroy()
            assert (await fork.exec(["/bin/true"])).status == "ok"
            await fork.destroy()

        await one()
        before = await count()
        for _ in range(40):
            await one()
        assert await count() == before

    with_host(body)


def test_a_fork_of_a_destroyed_sandbox_says_so() -> None:
    async def body(host: NamespaceHost) -> None:
        box = await host.create()
        taken = await box.snapshot()
        await box.destroy()
        await box.destroy()
        with pytest.raises(SandboxLost, match="went with the sandbox"):
            await box.fork(taken)
        assert (await (await host.create()).exec(["/bin/true"])).status == "ok"

    with_host(body)


def test_many_at_once_each_see_their_own() -> None:
    async def body(host: NamespaceHost) -> list[bytes]:
        boxes = [await host.create() for _ in range(12)]

        async def one(i: int) -> bytes:
            await boxes[i].write("mine", str(i).encode())
            for _ in range(5):
                await boxes[i].exec(python=f"assert open('mine').read() == '{i}'; open('/tmp/x', 'a').write('x')")
            return (
                await boxes[i].exec(
                    python="print(open('mine').read(), len(open('/tmp/x').read()), len(__import__('os').listdir()))"
                )
            ).stdout

        return list(await asyncio.gather(*(one(i) for i in range(12))))

    assert with_host(body) == [f"{i} 5 1\n".encode() for i in range(12)]


def test_deep_chains_of_snapshots() -> None:
    async def body(host: NamespaceHost) -> bytes:
        box = await host.create()
        names = []
        for i in range(30):
            await box.write(f"f{i}", b"x")
            names.append(await box.snapshot())
        fork = await box.fork(names[20])
        inner = await fork.fork(await fork.snapshot())
        await box.restore(names[3])
        return (await inner.exec(python="import os; print(len(os.listdir()))")).stdout + (
            await box.exec(python="import os; print(len(os.listdir()))")
        ).stdout

    assert with_host(body) == b"21\n4\n"


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(level="T3"), "asks for isolation T3"),
        (Needs(process_snapshots=True), "snapshots files, not processes"),
    ],
)
def test_what_cannot_be_met_is_refused_with_the_reason(needs: Needs, words: str) -> None:
    async def body(host: NamespaceHost) -> None:
        with pytest.raises(SandboxUnavailable, match=words):
            await host.create(needs)

    with_host(body)


def test_a_plain_user_gets_no_t2() -> None:
    if os.geteuid() != 0 or not Path("/usr/bin/python3").exists():
        pytest.skip("this is a plain user already, or there is no interpreter that one may read")

    async def body(host: NamespaceHost) -> None:
        assert host.level == "T2u"
        with pytest.raises(SandboxUnavailable, match="memory: not root"):
            await host.create(Needs(level="T2"))
        with pytest.raises(SandboxUnavailable, match="control group memory"):
            await host.create(Needs(total_memory=True))

    with_host(body, user=4242, interpreter="/usr/bin/python3")


def test_options_are_checked() -> None:
    with pytest.raises(UsageError, match="absolute directories"):
        Namespaces(readable=("data",))


def test_readable_directories_are_there_and_read_only(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text("given")
    for path in (tmp_path, *tmp_path.parents[:-2]):
        path.chmod(path.stat().st_mode | 0o055)

    async def body(host: NamespaceHost) -> tuple[bytes, str]:
        box = await host.create()
        found = await box.exec(["/bin/cat", str(tmp_path / "base.txt")])
        return found.stdout, (await box.exec(["/bin/sh", "-c", f"echo x > {tmp_path}/base.txt"])).status

    assert with_host(body, readable=(str(tmp_path),)) == (b"given", "nonzero")


def test_limits_of_one_execution() -> None:
    async def body(host: NamespaceHost) -> list[str]:
        box = await host.create(Needs(limits=Limits(cpu=30, wall=60.0)))
        quick = Limits(cpu=1, wall=2.0, output=100)
        return [
            (await box.exec(python="while True: pass", limits=Limits(cpu=1, wall=60.0))).status,
            (await box.exec(python="import time; time.sleep(9)", limits=quick)).status,
            (await box.exec(python="print('x' * 1000)", limits=quick)).status,
            (await box.exec(python="print('x' * 1000)")).status,
        ]

    assert with_host(body) == ["timeout_cpu", "timeout_wall", "output_limit", "ok"]


def test_a_cancelled_execution_is_gone_and_kept_programs_live_on() -> None:
    async def body(host: NamespaceHost) -> tuple[bytes, str, bytes, bytes]:
        box = await host.create()
        shell = await box.keep(["/bin/sh"])
        running = asyncio.create_task(box.exec(python="import os\nos.fork()\nwhile True: pass"))
        await asyncio.sleep(0.2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        count = "import os; print(len([p for p in os.listdir('/proc') if p.isdigit()]))"
        after = (await box.exec(python=count)).stdout
        late = await box.exec(python="import time; time.sleep(9)", limits=Limits(wall=0.3))
        again = (await box.exec(python=count)).stdout
        await shell.send(b"echo here\n")
        return after, late.status, again, await anext(aiter(shell.output()))

    assert with_host(body) == (b"1\n", "timeout_wall", b"1\n", b"here\n")  # Landlock hides the shell from its neighbours


def test_without_await() -> None:
    with Blocking(Namespaces()) as host:
        box = host.create()
        assert box.exec(python="print(6 * 7)").stdout == b"42\n"
        box.write("x", b"1")
        taken = box.snapshot()
        box.write("x", b"2")
        assert box.fork(taken).read("x") == b"1"
        shell = box.keep(["/bin/cat"])
        shell.send(b"hello")
        assert next(shell.output()) == b"hello"
        assert shell.end().status == "ok"
        with pytest.raises(FileNotFoundError):
            box.read("nothing")


def test_the_shared_sandboxes_serve_any_loop_and_begin_again_after_a_loss() -> None:
    async def work(box: Any) -> bytes:
        return (await box.exec(python="print(1)")).stdout  # type: ignore[no-any-return]

    assert asyncio.run(in_sandbox(Needs(), work)) == b"1\n"
    assert asyncio.run(in_sandbox(Needs(), work)) == b"1\n"
    tries = []

    async def loses_twice(box: Any) -> int:
        tries.append(box.name)
        if len(tries) < 3:
            raise SandboxLost("gone")
        return len(set(tries))

    assert asyncio.run(in_sandbox(Needs(), loses_twice)) == 3
    forget()
    assert asyncio.run(in_sandbox(Needs(), work)) == b"1\n"


def test_pairs_are_admitted_together() -> None:
    """More pairs than fit at once: none holds one sandbox and waits for the other."""

    async def work(first: Any, second: Any) -> bytes:
        await first.exec(python="print(1)")
        return (await second.exec(python="print(2)")).stdout  # type: ignore[no-any-return]

    async def main() -> list[bytes]:
        many = Needs(limits=Limits(cpus=1.0, memory=64))
        return list(await asyncio.gather(*(in_sandboxes((many, many), work) for _ in range(24))))

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [b"2\n"] * 24


def test_who_sleeps_first_and_spins_at_the_limit_had_its_chance() -> None:
    async def body(host: NamespaceHost) -> str:
        box = await host.create(Needs(limits=Limits(cpu=5, wall=2.0)))
        return (await box.exec(python="import time\ntime.sleep(1.7)\nwhile True: pass")).status

    assert with_host(body) == "timeout_wall"


def test_what_cannot_be_sent_is_refused_and_the_sandbox_lives() -> None:
    async def body(host: NamespaceHost) -> str:
        box = await host.create()
        with pytest.raises(UsageError, match="hand a long text over as stdin"):
            await box.exec(["/bin/echo", "x" * 150_000])
        for argv, env in ((["a\0b"], {}), (["x"], {"A": "b\0"}), (["\ud800"], {})):
            with pytest.raises(UsageError, match="without NUL"):
                await box.exec(argv, env=env)
        return (await box.exec(python="print(1)")).status

    assert with_host(body) == "ok"


def test_a_kept_program_that_holds_all_processes() -> None:
    greedy = (
        "import os, time\nwhile True:\n    try:\n        os.fork() or time.sleep(99)\n    except OSError:\n        time.sleep(99)"
    )

    async def body(host: NamespaceHost) -> str:
        box = await host.create(Needs(limits=Limits(pids=8)))
        await box.keep(python=greedy)
        await asyncio.sleep(0.5)
        return (await box.exec(python="print(1)")).status

    assert with_host(body) == "pids"


def test_a_snapshot_that_fails_leaves_room_and_nobody_stopped() -> None:
    async def body(host: NamespaceHost) -> tuple[str, bytes]:
        box = await host.create(Needs(limits=Limits(disk=16)))
        shell = await box.keep(["/bin/sh"])
        await box.exec(python="open('x', 'wb').write(bytes(10 << 20))")
        with pytest.raises(SandboxLost, match="No space left"):
            await box.snapshot()
        await shell.send(b"echo here\n")
        said = await anext(aiter(shell.output()))
        return (await box.exec(python="open('y', 'wb').write(bytes(4 << 20))")).status, said

    assert with_host(body) == ("ok", b"here\n")


def test_a_program_that_does_not_read_holds_nobody_up() -> None:
    async def body(host: NamespaceHost) -> None:
        box = await host.create(Needs(limits=Limits(wall=0.5)))
        deaf = [await box.keep(["/bin/sleep", "60"]) for _ in range(6)]
        with pytest.raises(TimeoutError):
            await asyncio.gather(*(program.send(bytes(1 << 20)) for program in deaf))
        before = len(os.listdir("/proc/self/fd"))
        await box.destroy()
        assert len(os.listdir("/proc/self/fd")) < before - 6

    with_host(body)


def test_a_cancelled_making_leaves_nothing() -> None:
    async def body(host: NamespaceHost) -> None:
        await (await host.create()).destroy()
        before = len(os.listdir("/proc/self/fd"))
        for wait in (0, 0.001, 0.004, 0.01):
            making = asyncio.create_task(host.create())
            await asyncio.sleep(wait)
            making.cancel()
            (made,) = await asyncio.gather(making, return_exceptions=True)
            if not isinstance(made, BaseException):
                await made.destroy()
        await (await host.create()).destroy()
        assert len(os.listdir("/proc/self/fd")) <= before
        (supervisor,) = supervisors()
        assert not [p for p in Path("/sys/fs/cgroup").glob("*/*") if p.name.startswith(f"posttrain-{supervisor}-")]

    with_host(body)

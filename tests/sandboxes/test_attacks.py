"""Every attack, at every level that this machine has; and each wall taken away, to see that it is what holds."""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandboxes.attacks import ATTACKS, Attack

from posttrain.errors import SandboxUnavailable
from posttrain.sandboxes._base import ExecResult, Limits, Needs
from posttrain.sandboxes.landlock import Landlock
from posttrain.sandboxes.namespaces import Namespaces

LIMITS = Limits(memory=128, disk=32, pids=40, cpu=1, wall=5.0, files=4000)
PLAIN_USER = 4242
SYSTEM_PYTHON = "/usr/bin/python3"
pytestmark = pytest.mark.skipif(os.name != "posix" or not Path("/proc/self/ns/user").exists(), reason="needs Linux")


@pytest.fixture(scope="module")
def canaries() -> Iterator[dict[str, Any]]:
    """What an escape would find: a file, a service, sockets, a secret in our environment and memory."""
    place = Path(tempfile.mkdtemp(prefix="canary-"))  # pytest's own directories are shut to other users
    place.chmod(0o755)
    (place / "file").write_text("found")
    own = place / "own"  # what is the programs' own user's, as much is where they run as whoever asks
    own.mkdir()
    (own / "file").write_text("found")
    for path in (own, own / "file"):
        shutil.chown(path, PLAIN_USER, PLAIN_USER) if os.geteuid() == 0 else None
    user = PLAIN_USER if os.geteuid() == 0 else None
    victim = subprocess.Popen(["/bin/sleep", "600"], user=user, group=user)
    os.environ["CANARY_KEY"] = "sk-canary-0123456789"
    listening = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    listening[1].bind(str(place / "socket"))
    listening[2].bind(f"\0posttrain-canary-{os.getpid()}")
    for s in listening[1:]:
        s.listen()
    yield {"CANARY": str(place / "file"), "PORT": listening[0].getsockname()[1], "UNIX": str(place / "socket"),
           "ABSTRACT": f"posttrain-canary-{os.getpid()}", "HOST_PID": os.getpid(),
           "OWN": str(own), "VICTIM": victim.pid}  # fmt: skip
    assert victim.poll() is None, "another process of the same user's lives on"
    victim.kill()
    victim.wait()
    for s in listening:
        s.close()
    shutil.rmtree(place)
    del os.environ["CANARY_KEY"]


IMITATION = """#!{python} -I
import ctypes, os, struct, sys
# what a container's profile refuses to a plain user: new namespaces, mounts, ptrace, keys, bpf
lines = [(0x20, 0, 0, 0)]
for number in (272, 165, 308, 101, 250, 321):
    lines += [(0x15, 0, 1, number), (6, 0, 0, 0x50001)]
lines += [(0x15, 0, 3, 56), (0x20, 0, 0, 16), (0x45, 0, 1, 0x7E020000), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
text = b"".join(struct.pack("HBBI", *line) for line in lines)
lines = ctypes.create_string_buffer(text, len(text))
record = struct.pack("HxxxxxxP", len(text) // 8, ctypes.addressof(lines))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.syscall(317, 1, 0, ctypes.create_string_buffer(record)):
    sys.exit("no filter: " + os.strerror(ctypes.get_errno()))
os.execv("{python}", ["{python}", *sys.argv[1:]])
"""


@functools.cache
def imitation() -> str:
    """A Python that finds itself in a container which allows no namespaces."""
    place = tempfile.mkdtemp(prefix="imitation-")
    os.chmod(place, 0o755)
    path = Path(place) / "python"
    path.write_text(IMITATION.format(python=SYSTEM_PYTHON))
    path.chmod(0o755)
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return str(path)


def options(level: str) -> Namespaces | Landlock:
    if level == "T1":
        if not Path(SYSTEM_PYTHON).exists() or os.uname().machine != "x86_64":
            pytest.skip("no interpreter that a plain user may read, or no imitation for this machine")
        return Landlock(user=PLAIN_USER if os.geteuid() == 0 else None, interpreter=imitation())
    if level == "T2u" and os.geteuid() == 0:
        if not Path(SYSTEM_PYTHON).exists():
            pytest.skip("no interpreter that a plain user may read")
        return Namespaces(user=PLAIN_USER, interpreter=SYSTEM_PYTHON)
    return Namespaces()


def run(level: str, attack: Attack, canaries: dict[str, Any], **create: Any) -> tuple[ExecResult, ExecResult]:
    """How it ended, and whether the sandbox is good for the next program."""
    head = "".join(f"{k} = {v!r}\n" for k, v in canaries.items())

    async def main() -> tuple[ExecResult, ExecResult]:
        async with options(level).open() as host:
            if host.level != level:
                pytest.skip(f"this machine gives {host.level}: {host.missing}")
            box = await host.create(Needs(limits=LIMITS, level="T1"), **create)
            first = await box.exec(python=head + attack.text)
            if level == "T1":  # programs see no processes but their own
                left = (await box.stats())["pids"]
                return first, await box.exec(python=f"print({1 + int(left)})")
            return first, await box.exec(python="import os; print(len([p for p in os.listdir('/proc') if p.isdigit()]))")

    return asyncio.run(main())


SLOW = [pytest.param(level, marks=pytest.mark.slow) for level in ("T2u", "T1")]


@pytest.mark.parametrize("level", ["T2", *SLOW])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_an_attack_is_held(level: str, attack: Attack, canaries: dict[str, Any]) -> None:
    result, after = run(level, attack, canaries)
    assert (after.status, after.stdout) == ("ok", b"1\n"), "nothing is left of it"
    if attack.only and level not in attack.only:  # and once it is held, the documents say too little
        assert b"ESCAPED" in result.stdout, result
        return
    assert result.status in attack.ends or (result.status == "ok" and result.stdout.rstrip().endswith(b"held")), result


FORKS = """
import os, time
block = bytearray(os.urandom(1 << 16)) * 640  # 40 MB, one page for all that only read it
pids = []
for _ in range(8):
    pid = os.fork()
    if not pid:
        time.sleep(0.5)
        os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("level", ["T2", "T2u"])
def test_pages_that_forks_share_are_counted_once(level: str, canaries: dict[str, Any]) -> None:
    result, _ = run(level, Attack("", FORKS), canaries)
    assert (result.status, result.stdout) == ("ok", b"held\n"), result


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.let], ids=lambda a: a.name)
def test_the_filter_is_what_holds_it(attack: Attack, canaries: dict[str, Any]) -> None:
    """With its call let through the program sees another answer: the rule is there, and the test can fail."""
    result, _ = run("T2", attack, canaries, let=attack.let)
    assert b"ESCAPED" in result.stdout, result


@pytest.mark.parametrize(
    ("name", "wall"),
    [
        ("egress", {"let": "socket"}),
        ("modes, times and turns of what is not its", {"let": "chmod"}),
        ("modes, times and turns of what is not its", {"let": "setpriority"}),
        ("write where nothing may be written", {"off": ("landlock",)}),
        ("read what is not its", {"off": ("landlock",)}),
    ],
)
def test_without_namespaces_this_wall_is_what_holds_it(name: str, wall: dict[str, Any], canaries: dict[str, Any]) -> None:
    attack = next(a for a in ATTACKS if a.name == name)
    program = (
        f"refused('own', lambda: open(OWN + '/file', 'a').write('x'))\n{attack.program}" if "off" in wall else attack.program
    )
    held, _ = run("T1", Attack(name, program), canaries)
    assert (held.status, held.stdout) == ("ok", b"held\n"), held
    try:
        result, _ = run("T1", Attack(name, program), canaries, **wall)
    finally:
        for path in (Path(canaries["OWN"]), Path(canaries["OWN"]) / "file"):
            path.chmod(0o755)
    assert b"ESCAPED" in result.stdout, result


def test_nothing_runs_below_the_level_that_was_asked_for() -> None:
    async def main() -> None:
        async with options("T1").open() as host:
            assert host.level == "T1"
            with pytest.raises(SandboxUnavailable, match=r"asks for isolation T2u.*errno 1.*accept level = 'T1'"):
                await host.create(Needs(level="T2u"))
            with pytest.raises(SandboxUnavailable, match="watched, not bounded"):
                await host.create(Needs(level="T1", total_memory=True))

    asyncio.run(main())


def test_threads_of_ours_do_not_matter() -> None:
    """The controller may have threads; the supervisor is started fresh."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()

    async def main() -> ExecResult:
        async with Namespaces().open() as host:
            return await (await host.create()).exec(python="print(6 * 7)")

    try:
        assert asyncio.run(main()).stdout == b"42\n"
    finally:
        stop.set()
        thread.join()

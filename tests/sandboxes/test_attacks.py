"""Every attack, at every level that this machine has; and each wall taken away, to see that it is what holds."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandboxes.attacks import ATTACKS, Attack

from posttrain.sandboxes._base import ExecResult, Limits, Needs
from posttrain.sandboxes.namespaces import Namespaces

LIMITS = Limits(memory=128, disk=32, pids=40, cpu=1, wall=5.0, files=4000)
PLAIN_USER = 4242
SYSTEM_PYTHON = "/usr/bin/python3"
pytestmark = pytest.mark.skipif(os.name != "posix" or not Path("/proc/self/ns/user").exists(), reason="needs Linux")


@pytest.fixture(scope="module")
def canaries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What an escape would find: a file, a service, sockets, a secret in our environment and memory."""
    place = tmp_path_factory.mktemp("canary")
    place.chmod(0o755)
    (place / "file").write_text("found")
    os.environ["CANARY_KEY"] = "sk-canary-0123456789"
    listening = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    listening[1].bind(str(place / "socket"))
    listening[2].bind(f"\0posttrain-canary-{os.getpid()}")
    for s in listening[1:]:
        s.listen()
    yield {"CANARY": str(place / "file"), "PORT": listening[0].getsockname()[1], "UNIX": str(place / "socket"),
           "ABSTRACT": f"posttrain-canary-{os.getpid()}", "HOST_PID": os.getpid()}  # fmt: skip
    for s in listening:
        s.close()
    del os.environ["CANARY_KEY"]


def options(level: str) -> Namespaces:
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
            box = await host.create(Needs(limits=LIMITS), **create)
            first = await box.exec(python=head + attack.text)
            return first, await box.exec(python="import os; print(len([p for p in os.listdir('/proc') if p.isdigit()]))")

    return asyncio.run(main())


@pytest.mark.parametrize("level", ["T2", pytest.param("T2u", marks=pytest.mark.slow)])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_an_attack_is_held(level: str, attack: Attack, canaries: dict[str, Any]) -> None:
    result, after = run(level, attack, canaries)
    assert result.status in attack.ends or (result.status == "ok" and result.stdout.rstrip().endswith(b"held")), result
    assert (after.status, after.stdout) == ("ok", b"1\n"), "nothing is left of it"


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

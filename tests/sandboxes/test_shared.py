"""The shared sandboxes: what is lost is tried again, in time, a bounded number of times, and is on the record."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import pytest
from tests.sandboxes.killing import sandboxes, supervisors

from posttrain.errors import LostAgain, SandboxLost
from posttrain.sandboxes import shared
from posttrain.sandboxes._base import Limits, Needs
from posttrain.sandboxes.namespaces import host
from posttrain.sandboxes.shared import forget, in_sandbox
from posttrain.sandboxes.usage import recorded

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
SMALL = Needs(limits=Limits(memory=64, disk=8, pids=8, files=500, cpus=0.2, cpu=5, wall=20.0))


@pytest.fixture(autouse=True)
def no_shared_ones() -> None:
    """Supervisors are counted here."""
    forget()


async def one(box: Any) -> bytes:
    result = await box.exec(python="print(1)")
    if result.status != "ok":
        raise SandboxLost(result.detail)
    return result.stdout  # type: ignore[no-any-return]


def test_all_who_lost_their_supervisor_share_one_new_one() -> None:
    async def kept_busy(box: Any) -> bytes:
        if not killed:
            result = await box.exec(python="import time; time.sleep(20)")
            raise SandboxLost(result.detail)
        return await one(box)

    async def kill() -> None:
        while len(sandboxes()) < 8:
            await asyncio.sleep(0.02)
        (supervisor,) = supervisors()
        killed.append(supervisor)
        os.kill(supervisor, signal.SIGKILL)

    async def main() -> list[bytes]:
        return (await asyncio.gather(kill(), *(in_sandbox(SMALL, kept_busy) for _ in range(8))))[1:]

    killed: list[int] = []
    assert asyncio.run(asyncio.wait_for(main(), 60)) == [b"1\n"] * 8
    assert len(supervisors()) == 1 and not supervisors() & set(killed)


def test_a_supervisor_that_no_longer_answers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[bytes, list[str]]:
        await in_sandbox(SMALL, one)
        (stopped,) = supervisors()
        monkeypatch.setattr(host, "ANSWER", 1.0)
        os.kill(stopped, signal.SIGSTOP)
        with recorded() as usage:
            found = await in_sandbox(SMALL, one)
        assert supervisors() and stopped not in supervisors()
        return found, usage.lost

    found, lost = asyncio.run(asyncio.wait_for(main(), 60))
    assert found == b"1\n"
    assert lost[0] == "the sandboxes' supervisor did not answer 'create' within 1 s"


def test_tries_are_bounded_spaced_and_on_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[float] = []
    waiting: list[float] = []

    async def loses(box: Any) -> None:
        began.append(time.monotonic())
        raise SandboxLost(f"gone {len(began)}")

    async def watch() -> None:
        while len(began) < 3:
            waiting.append(shared._made[0]._leases.status()["cpus"])
            await asyncio.sleep(0.01)

    async def main() -> None:
        await in_sandbox(SMALL, one)
        watching = asyncio.create_task(watch())
        with recorded() as usage, pytest.raises(LostAgain, match=r"3 sandboxes of sums/add were lost.* the last: gone 3"):
            await in_sandbox(SMALL, loses, key="sums/add")
        await watching
        assert usage.lost == ["gone 1", "gone 2", "gone 3"]
        assert set(usage.timings) == {"admission", "create", "sandboxed"} and usage.timings["create"] > 0

    asyncio.run(asyncio.wait_for(main(), 60))
    assert began[1] - began[0] >= shared.BACKOFF and began[2] - began[1] >= 2 * shared.BACKOFF
    capacity = shared._made[0]._leases.capacity.cpus
    assert capacity in waiting, "between two tries it holds no lease"


def test_what_the_work_raises_is_not_tried_again() -> None:
    tries = []

    async def fails(box: Any) -> None:
        tries.append(box)
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        asyncio.run(in_sandbox(SMALL, fails))
    assert len(tries) == 1


def test_who_is_cancelled_leaves_nothing_behind() -> None:
    async def sleeps(box: Any) -> None:
        await box.exec(python="import time; time.sleep(20)")

    async def main() -> None:
        working = asyncio.create_task(in_sandbox(SMALL, sleeps))
        while not sandboxes():
            await asyncio.sleep(0.02)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        until = time.monotonic() + 5
        leases = shared._made[0]._leases
        while sandboxes() or leases.status()["cpus"] < leases.capacity.cpus:
            assert time.monotonic() < until
            await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(main(), 60))

"""Supervisors and sandboxes are killed, hosts starve, candidates deadlock: one status each, ours never a 0, nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sandboxes.killing import sandboxes, supervisors

from posttrain.errors import EXEC_STATUS, SandboxLost
from posttrain.rollout.workers import rollout
from posttrain.sandboxes import shared
from posttrain.sandboxes._base import Limits, Needs
from posttrain.sandboxes.namespaces import Namespaces
from posttrain.types import Sampling, Trajectory, Verdict

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
AT_ONCE = 50
DEADLOCK = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"
SPIN = "while True: pass"


class Chaotic:
    """Runs the task's program; of every 20 tasks one loses some sandbox, one is starved at its first try, one deadlocks."""

    def __init__(self, supervisor_every: int) -> None:
        share = 1 / (AT_ONCE + 0.5)
        capacity = shared.Capacity.of_this_machine()
        limits = Limits(
            memory=int(capacity.memory * share), cpus=capacity.cpus * share, disk=8, pids=8, files=500, cpu=5, wall=20.0
        )
        self.needs = Needs(limits=limits)
        self.slots, self.rng, self.supervisor_every = asyncio.Semaphore(AT_ONCE), random.Random(0), supervisor_every
        self.tries: Counter[int] = Counter()
        self.killed: Counter[str] = Counter()

    async def judge(self, trajectory: Trajectory) -> Verdict:
        n = int(trajectory.task.answer)
        async with self.slots:
            status = await shared.in_sandbox(self.needs, lambda box: self.ran(box, n), key=trajectory.task.environment)
        return Verdict(status="ok", reward=1.0) if status == "ok" else Verdict(status="wrong")

    async def ran(self, box: Any, n: int) -> str:
        self.tries[n] += 1
        first = self.tries[n] == 1
        if first and n % self.supervisor_every == self.supervisor_every // 2:
            self.kill("supervisor", supervisors())
        if first and n % 20 == 0:
            self.kill("sandbox", sandboxes())
        if first and n % 20 == 1:
            starved = await box.host.create(Needs(limits=Limits(cpus=0.02, cpu=1, wall=2.0, memory=64, disk=8, pids=8)))
            try:
                result = await starved.exec(python=SPIN)
            finally:
                with contextlib.suppress(SandboxLost):
                    await starved.destroy()
        elif n % 20 == 2:
            result = await box.exec(python=DEADLOCK, limits=Limits(cpu=1, wall=1.0))
        else:
            result = await box.exec(python="print(1)" if n % 2 else "raise SystemExit(3)")
        if EXEC_STATUS[result.status] == "infra_error":
            raise SandboxLost(result.detail)
        return str(result.status)

    def kill(self, what: str, pids: set[int]) -> None:
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.rng.choice(sorted(pids)), signal.SIGKILL)
                self.killed[what] += 1


def needs_control_groups() -> None:
    """A host is starved by a quota."""

    async def level() -> str:
        async with Namespaces().open() as host:
            return host.level

    if (found := asyncio.run(level())) != "T2":
        pytest.skip(f"needs control groups, this machine gives {found}")


@pytest.mark.parametrize("number", [120, pytest.param(2000, marks=pytest.mark.slow)])
def test_chaos(world: SimpleNamespace, number: int) -> None:
    needs_control_groups()
    shared.forget()
    events: list[dict[str, Any]] = []

    async def main() -> tuple[Chaotic, list[Any]]:
        chaotic = Chaotic(supervisor_every=min(250, number))
        env = world.Toy(judge_with=chaotic)
        made = rollout(
            [(env.task(n), env, 0) for n in range(number)],
            world.KeyedEngine(skill=1.0),
            seed=0,
            sampling=Sampling(),
            events=lambda **e: events.append(e),
        )
        return chaotic, await asyncio.wait_for(made, 280)

    began = time.monotonic()
    chaotic, groups = asyncio.run(main())
    attempts = {t.task.answer: t for g in groups for t in g.trajectories}
    told = Counter(e["attempt"] for e in events if e["kind"] == "attempt")
    assert len(attempts) == number and set(told.values()) == {1} and len(told) == number, "one status each"
    statuses: Counter[str] = Counter()
    for n, t in attempts.items():
        assert t.verdict is not None
        statuses[t.verdict.status] += 1
        if t.verdict.status == "infra_error":
            assert t.reward is None and t.outcome == "infra_error"
            continue
        right = n % 2 == 1 and n % 20 != 2
        assert (t.verdict.status, t.reward) == (("ok", 1.0) if right else ("wrong", 0.0)), (n, t)
    lost = [why for e in events if e["kind"] == "attempt" for why in e["sandboxes_lost"]]
    starved = sum("starved" in why for why in lost)
    print(f"{number} tasks, {time.monotonic() - began:.1f} s, {dict(statuses)}, killed {dict(chaotic.killed)}, {len(lost)} lost")
    assert chaotic.killed["supervisor"] >= number // 250 and chaotic.killed["sandbox"] >= number // 25
    assert starved >= 0.25 * number // 20 and len(lost) >= starved + chaotic.killed["supervisor"]
    assert statuses["infra_error"] <= 0.02 * number
    leases = shared._made[0]._leases
    assert leases.status()["cpus"] == pytest.approx(leases.capacity.cpus, abs=1e-3) and leases.status()["waiting"] == 0
    assert len(supervisors()) == 1

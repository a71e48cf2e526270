"""The attempts at one task. One that fails on our side is made again, alone; its group goes on without it if it must."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from posttrain.engines._base import Engine
from posttrain.envs._base import Environment
from posttrain.errors import DeadlineExceeded, InfraError
from posttrain.rollout.aborts import Aborted, Aborts
from posttrain.rollout.deadlines import DEFAULT, Deadlines, within
from posttrain.rollout.run import judge, run
from posttrain.sandboxes._base import Sandbox
from posttrain.sandboxes.usage import Usage, recorded
from posttrain.types import Group, Sampling, Task, Trajectory, Turn, Verdict

Events = Callable[..., None]  # keyword arguments; ``RunDir.write_event`` is one
MAX_RETRIES = 2
FINAL = ("Broken", "NoRoom", "LostAgain")  # failures that a retry would meet again, or that were retried below


async def run_group(
    task: Task,
    environment: Environment,
    engine: Engine,
    *,
    group_size: int,
    seed: int,
    sampling: Sampling,
    visit: int = 0,
    first_attempt: int = 0,
    start: tuple[Trajectory, int] | None = None,
    sandbox: Sandbox | None = None,
    slots: asyncio.Semaphore | None = None,
    deadlines: Deadlines = DEFAULT,
    backoff: float = 0.05,
    events: Events | None = None,
    aborts: Aborts | None = None,
) -> Group:
    """``group_size`` judged attempts in a fixed order, at most as many at a time as ``slots`` has.

    Infrastructure failures are retried up to twice under the same key (so a retry is the same attempt), ``backoff``
    seconds apart, doubling; one that still fails, or whose prompt has no room in the context, stays in the group as
    ``infra_error`` without a reward.
    """
    slots = slots or asyncio.Semaphore(group_size)
    makers = [
        _Maker(
            task,
            environment,
            engine,
            sandbox,
            seed,
            visit,
            first_attempt + i,
            sampling,
            start,
            slots,
            deadlines,
            backoff,
            events,
            aborts or Aborts(),
        )
        for i in range(group_size)
    ]
    members = await all_of([maker.judged() for maker in makers])
    return Group(task=task, trajectories=tuple(members), start=None if start is None else (start[0].id, start[1]))


async def all_of(awaitables: Sequence[Any]) -> list[Any]:
    """Results in order; the first exception cancels the rest, waits for them, and goes up."""
    tasks = [asyncio.ensure_future(a) for a in awaitables]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class _Maker:
    """Makes one attempt, again if our side fails. A slot is held while the attempt is made, not while it is judged:

    so what the engine sees, and when, does not depend on how fast a verifier is.
    """

    task: Task
    environment: Environment
    engine: Engine
    sandbox: Sandbox | None
    seed: int
    visit: int
    attempt: int
    sampling: Sampling
    start: tuple[Trajectory, int] | None
    slots: asyncio.Semaphore
    deadlines: Deadlines
    backoff: float
    events: Events | None
    aborts: Aborts
    failures: list[str] = field(default_factory=list)
    wasted: int = 0  # tokens that were sampled and thrown away

    async def judged(self) -> Trajectory:
        """The attempt with its verdict, told once, with what all its tries waited for and the sandboxes that they lost."""
        with recorded() as usage:
            try:
                done = await self.aborts.until(f"{self.task.id}#{self.visit}.{self.attempt}", self.tried(usage))
            except Aborted as error:
                self.failures.append("Aborted")
                done = self.unmade(error)
        return self.told(done, usage)

    async def tried(self, usage: Usage) -> Trajectory:
        """A verdict that failed is asked for again, without sampling again."""
        unjudged: Trajectory | None = None
        for retry in range(MAX_RETRIES + 1):
            if unjudged is None:
                with usage.timed("queue"):
                    await self.slots.acquire()
                try:
                    unjudged = await self.once()
                finally:
                    self.slots.release()
            done = await judge(unjudged, self.environment, deadline=self.deadlines.judge)
            if done.outcome != "infra_error":
                break
            kind = str(done.metadata.get("failure", "InfraError"))
            self.failures.append(kind)
            if unjudged.outcome == "infra_error":
                self.wasted += unjudged.num_sampled
                unjudged = None
            will_retry = retry < MAX_RETRIES and kind not in FINAL
            self.tell(kind="failure", attempt=done.id, failure=kind, what=done.error, retry=retry, retried=will_retry)
            if not will_retry:
                break
            await asyncio.sleep(self.backoff * 2**retry)
        if done.outcome == "infra_error" and unjudged is not None:
            self.wasted += unjudged.num_sampled
        return done

    async def once(self) -> Trajectory:
        """One try under the attempt's deadline."""
        trying = run(
            self.task,
            self.environment,
            self.engine,
            self.sandbox,
            seed=self.seed,
            visit=self.visit,
            attempt=self.attempt,
            sampling=self.sampling,
            start=self.start,
            deadlines=self.deadlines,
        )
        try:
            return await within(f"attempt {self.task.id}#{self.visit}.{self.attempt}", self.deadlines.attempt, trying)
        except DeadlineExceeded as error:
            return self.unmade(error)

    def unmade(self, error: InfraError) -> Trajectory:
        """What stands for an attempt that never came to an end."""
        return Trajectory(
            task=self.task,
            visit=self.visit,
            attempt=self.attempt,
            seed=self.seed,
            turns=(Turn(role="prompt", token_ids=()),),
            outcome="infra_error",
            error=str(error),
            verdict=Verdict(status="infra_error", evidence={"error": str(error)}),
            sampling=self.sampling,
            metadata={"failure": type(error).__name__},
        )

    def told(self, done: Trajectory, usage: Usage) -> Trajectory:
        """Notes the failures on the record and logs the attempt."""
        done = replace(done, timings={**done.timings, **usage.timings})
        if self.failures:
            notes = {"failures": list(self.failures), "wasted_tokens": self.wasted}
            done = replace(
                done, retries=len(self.failures) - (done.outcome == "infra_error"), metadata={**done.metadata, **notes}
            )
        verdict = done.verdict or Verdict(status="unverifiable")
        self.tell(
            kind="attempt",
            attempt=done.id,
            environment=self.task.environment,
            outcome=done.outcome,
            status=verdict.status,
            reward=done.reward,
            tokens=done.num_sampled,
            policy_version=done.policy_version,
            staleness=None if done.policy_version is None else self.engine.policy_version - done.policy_version,
            retries=done.retries,
            sandboxes_lost=list(usage.lost),
            timings=dict(done.timings),
        )
        return done

    def tell(self, **event: Any) -> None:
        if self.events is not None:
            self.events(**event)

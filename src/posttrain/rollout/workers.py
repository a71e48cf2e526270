"""Many groups at once, in a fixed order of submission, with one bound on attempts in flight."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from posttrain.engines._base import Engine
from posttrain.envs._base import Environment
from posttrain.errors import InvalidRun, UsageError
from posttrain.rollout.aborts import Aborts
from posttrain.rollout.deadlines import DEFAULT, Deadlines
from posttrain.rollout.group import Events, all_of, run_group
from posttrain.sandboxes._base import Sandbox
from posttrain.types import Group, Sampling, Task

if TYPE_CHECKING:
    from posttrain.progress import Progress

HOPELESS = 16  # failures on our side without a single success, after which a rollout gives up
MAX_BUGS = 3  # attempts that an environment's or verifier's own code may break before the run refuses to go on


async def rollout(
    requests: Sequence[tuple[Task, Environment, int]],
    engine: Engine,
    *,
    group_size: int = 1,
    seed: int,
    sampling: Sampling,
    concurrency: int = 128,
    deadlines: Deadlines = DEFAULT,
    sandbox: Sandbox | None = None,
    backoff: float = 0.05,
    events: Events | None = None,
    progress: Progress | None = None,
    expected: tuple[int, str] | None = None,
    aborts: Aborts | None = None,
) -> list[Group]:
    """Judged groups in the order of ``requests``, which are (task, environment, visit); ``group_size`` attempts each.

    At most ``concurrency`` attempts are made at a time, in a fixed order. ``events`` takes what happens as keyword arguments
    (``RunDir.write_event`` is one such); ``progress`` is told how many groups are done; ``aborts`` ends attempts under way.

    ``expected`` is (policy version, weights hash) of the weights that must have sampled: anything else is ``InvalidRun``,
    which names the engine. So is code of an environment or verifier that raises more than a few times. A task whose prompt
    has no room in the engine's context is left out, an ``infra_error`` that says so; where none has room: ``UsageError``.
    """
    slots = asyncio.Semaphore(concurrency)
    watched = _Watch(events)
    done = 0

    async def one(task: Task, environment: Environment, visit: int) -> Group:
        nonlocal done
        group = await run_group(
            task,
            environment,
            engine,
            group_size=group_size,
            seed=seed,
            sampling=sampling,
            visit=visit,
            sandbox=sandbox,
            slots=slots,
            deadlines=deadlines,
            backoff=backoff,
            events=watched,
            aborts=aborts,
        )
        done += 1
        if progress is not None:
            progress.update(done)
        return group

    groups: list[Group] = await all_of([one(*request) for request in requests])
    _refuse_bugs(groups)
    _refuse_roomless(groups)
    if expected is not None:
        _refuse_stale(groups, engine, *expected)
    if events is not None:
        events(kind="rollout", **counts(groups))
    return groups


class _Watch:
    """Passes events on, and ends a rollout in which nothing works: better now than after every deadline has passed."""

    def __init__(self, events: Events | None) -> None:
        self.events = events
        self.failures = 0
        self.works = False

    def __call__(self, **event: Any) -> None:
        if self.events is not None:
            self.events(**event)
        self.works |= event["kind"] == "attempt" and event["outcome"] != "infra_error"
        self.failures += event["kind"] == "failure" and event["failure"] != "NoRoom"
        if not self.works and self.failures >= HOPELESS:
            raise InvalidRun(
                f"the first {self.failures} tries of this rollout all failed on our side, the last: {event.get('what', '')}. "
                "Mend that, then resume the run"
            )


def counts(groups: Sequence[Group]) -> dict[str, float]:
    """Figures of one rollout: attempts by outcome, failures by type, retries, and the share of sampled tokens that may train."""
    attempts = [t for g in groups for t in g.trajectories]
    out: Counter[str] = Counter({"groups": len(groups), "attempts": len(attempts), "mixed_groups": sum(g.mixed for g in groups)})
    for t in attempts:
        out[f"outcome/{t.outcome}"] += 1
        if t.verdict is not None:
            out[f"status/{t.verdict.status}"] += 1
        out["retries"] += t.retries
        for kind in t.metadata.get("failures", ()):
            out[f"failure/{kind}"] += 1
    useful = sum(t.num_sampled for g in groups for t in g.trained)
    sampled = sum(t.num_sampled if t.outcome != "infra_error" else 0 for t in attempts)
    sampled += sum(int(t.metadata.get("wasted_tokens", 0)) for t in attempts)
    figures: dict[str, float] = dict(sorted(out.items()))
    figures["sampled_tokens"] = sampled
    figures["useful_token_fraction"] = useful / sampled if sampled else 1.0
    return figures


def _refuse_bugs(groups: Sequence[Group]) -> None:
    broken = [t for g in groups for t in g.trajectories if "Broken" in t.metadata.get("failures", ())]
    if len(broken) >= MAX_BUGS:
        raise InvalidRun(
            f"{len(broken)} attempts were broken by code of an environment or verifier; the first: {broken[0].error}. "
            "The answers are not wrong, the code is: mend it, then resume the run"
        )


def _refuse_roomless(groups: Sequence[Group]) -> None:
    """Nothing can be made of prompts that all fill the context; a single one is left out like any other."""
    attempts = [t for g in groups for t in g.trajectories]
    if len(groups) > 1 and all(t.metadata.get("failure") == "NoRoom" for t in attempts):
        raise UsageError(f"none of {len(groups)} tasks could be attempted; the first: {attempts[0].error}")


def _refuse_stale(groups: Sequence[Group], engine: Engine, version: int, weights_hash: str) -> None:
    for t in (t for g in groups for t in g.trajectories):
        own = [turn for i, turn in enumerate(t.turns) if turn.role == "assistant" and (t.parent is None or i > t.parent[1])]
        for turn in own:
            if set(turn.policy_versions) - {version} or (turn.token_ids and turn.weights_hash != weights_hash):
                raise InvalidRun(
                    f"engine {type(engine).__name__} sampled {t.id} with weights {turn.weights_hash or '(no hash)'} of version "
                    f"{sorted(set(turn.policy_versions))}, but the policy is at version {version} with {weights_hash}: "
                    "a weight update did not arrive. Resume from the last checkpoint"
                )

"""The SFT warm-up of a recipe: worked reference trajectories, then rejection sampling.

Differs from the textbook in being short on purpose: a policy sharpened by long SFT leaves RLVR few groups in which some
attempts pass and others fail. Quality over quantity: few rows, each judged right by the family's own verifier, seen ``epochs``
times.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from posttrain.losses._base import Loss
from posttrain.losses.cross_entropy import CrossEntropy
from posttrain.recipes._ranges import require_at_least
from posttrain.recipes._usage import used
from posttrain.rollout.scripted import rows_of_oracles
from posttrain.rollout.workers import rollout
from posttrain.train.publish import publish
from posttrain.types import Group, Sampling, Task, Trajectory

if TYPE_CHECKING:
    from posttrain.envs._base import Environment
    from posttrain.progress import Progress
    from posttrain.recipes._live import Live
    from posttrain.store.run_dir import RunDir
    from posttrain.train.policy import OpenPolicy

AHEAD = 512  # tasks of a stream that the warm-up leaves to the pool, which begins with them


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """``epochs`` times ``steps`` steps on oracle rows, then ``rejection_steps`` on the policy's own verified answers.

    ``rows_per_step`` rows a step; at most ``steps * rows_per_step`` oracle rows are made, spread evenly over environments, of
    tasks that a pool does not begin with: on what is known by heart all attempts of a group pass, and nothing is learnt.
    ``rejection_tasks`` tasks get ``rejection_samples`` attempts each; one verified attempt a task is kept. Later, each RLVR
    step ends with an SFT step on ``rehearsed_rows`` of all these rows, in turn, at the rate of RLVR: what is known still has
    next to no gradient, what the policy drifts from is pulled back (as PPO-ptx, 2203.02155, mixes rows in).
    """

    steps: int = 6
    epochs: int = 1
    rows_per_step: int = 16
    lr: float = 5e-5
    rejection_steps: int = 1
    rejection_tasks: int = 32
    rejection_samples: int = 4
    rehearsed_rows: int = 0
    temperature: float = 1.0
    loss: Loss = field(default_factory=CrossEntropy, metadata={"kind": "losses"})

    def __post_init__(self) -> None:
        require_at_least(self, steps=0, epochs=1, rows_per_step=1, lr=0, rejection_steps=0, rejection_tasks=0)
        require_at_least(self, rejection_samples=1, rehearsed_rows=0, temperature=0)

    @property
    def num_steps(self) -> int:
        """Most optimiser steps that it can take."""
        return self.steps * self.epochs + self.rejection_steps

    async def train(
        self,
        live: Live,
        environments: Sequence[Environment],
        run: RunDir,
        progress: Progress,
        *,
        seed: int,
        stage: str = "warm_up",
    ) -> int:
        """Runs the warm-up on ``live`` and returns its number of steps; the caller saves."""
        rows = await oracle_rows(live, environments, self.steps * self.rows_per_step)
        once = min(self.steps, -(-len(rows) // self.rows_per_step))
        steps = once * self.epochs
        progress.stage(stage, steps + self.rejection_steps)
        for step in range(steps):
            at = step % once * self.rows_per_step  # rows take turns between environments, so each step sees all of them
            await self.step(live, rows[at : at + self.rows_per_step], run, progress, stage, step)
        if not self.rejection_steps:
            return steps
        known = frozenset(row.task.prompt_hash for row in rows)
        kept = await self.rejection_rows(live, environments, run, progress, seed=seed, stage=stage, step=steps, known=known)
        more = min(self.rejection_steps, len(kept))
        for i in range(more):
            await self.step(live, kept[i::more], run, progress, stage, steps + i)
        return steps + more

    def within(self, minutes: float) -> WarmUp:
        """The same, smaller where ``minutes`` (0: no bound) leaves less than three for each epoch, or less than eleven in all.

        Evaluation takes its share of any budget, so what is left for rejection sampling shrinks with the square.
        """
        if not minutes:
            return self
        epochs = max(1, min(self.epochs, int(minutes / 3)))
        share = min(1.0, (minutes / 11) ** 2)
        tasks, steps = (math.ceil(n * share) for n in (self.rejection_tasks, self.rejection_steps))
        return replace(self, epochs=epochs, rejection_tasks=tasks, rejection_steps=steps)

    def rehearsal(self, run: RunDir, seed: int) -> Rehearsal:
        """What ``run`` has learnt in its warm-up, in random order, to be rehearsed; nothing where ``rehearsed_rows`` is 0."""
        rows = learnt_rows(run) if self.rehearsed_rows else []
        return Rehearsal(random.Random(seed).sample(rows, len(rows)), self.rehearsed_rows, self.loss)

    async def step(self, live: Live, rows: Sequence[Trajectory], run: RunDir, progress: Progress, stage: str, step: int) -> None:
        """One optimiser step on ``rows`` and its metrics."""
        began, cpu = time.monotonic(), time.process_time()
        result = live.policy.step(rows, self.loss, lr=self.lr)
        await publish(live.policy, live.engine)
        seconds = time.monotonic() - began
        run.write_trajectories(stage, step, result.trajectories)
        run.write_metrics(stage, step, {**result.metrics, "rows": len(rows), "train_seconds": seconds, **used(cpu)})
        progress.update(step + 1, loss=result.metrics["loss"], tokens_per_second=result.metrics["num_tokens_trained"] / seconds)

    async def rejection_rows(
        self,
        live: Live,
        environments: Sequence[Environment],
        run: RunDir,
        progress: Progress,
        *,
        seed: int,
        stage: str,
        step: int,
        known: frozenset[str] = frozenset(),
    ) -> list[Trajectory]:
        """The policy's own answers that its verifiers accept, one a task (not of the ``known`` prompts), with advantage 1."""
        share = -(-self.rejection_tasks // max(len(environments), 1))
        requests = [(task, env, 0) for env in environments for task in training_tasks(env, share, AHEAD, known)]
        groups = await rollout(
            requests,
            live.engine,
            group_size=self.rejection_samples,
            seed=seed,
            sampling=Sampling(temperature=self.temperature, max_tokens=max(task.limits.max_tokens for task, _, _ in requests)),
            events=partial(run.write_event, stage=stage, step=step),
            expected=(live.policy.version, live.policy.weights_hash()),
        )
        kept = verified_rows(groups)
        run.write_event(kind="rejection_sampling", stage=stage, step=step, tasks=len(groups), kept=len(kept))
        progress.log(f"rejection sampling: kept {len(kept)} verified answers of {len(groups)} tasks")
        return kept


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Rows that were learnt before RLVR and are seen again after each of its steps, ``num`` at a time."""

    rows: Sequence[Trajectory]
    num: int
    loss: Loss

    def at(self, step: int) -> list[Trajectory]:
        """The rows whose turn it is; the same ones in a resumed run."""
        return [self.rows[(step * self.num + i) % len(self.rows)] for i in range(min(self.num, len(self.rows)))]

    def __call__(self, policy: OpenPolicy, step: int) -> dict[str, float]:
        """One SFT step, not published, and its figures."""
        if not self.rows:
            return {}
        metrics = policy.step(self.at(step), self.loss).metrics
        return {"rehearsal_loss": metrics["loss"], "rehearsal_grad_norm": metrics["grad_norm"]}


def learnt_rows(run: RunDir) -> list[Trajectory]:
    """The rows of a run's warm-up, oracle's and verified ones, each once however often it was seen."""
    return [replace(t, advantage=1.0) for t in {t.id: t for t in run.trajectories("warm_up")}.values()]


def verified_rows(groups: Sequence[Group]) -> list[Trajectory]:
    """The shortest verified attempt of each group as an SFT row: it is least likely to be right by luck after a wrong step."""
    kept = []
    for group in groups:
        good = [t for t in group.trained if t.verdict is not None and t.verdict.status == "ok"]
        if good:
            best = min(good, key=lambda t: (t.num_sampled, t.attempt))
            kept.append(replace(best, advantage=1.0, sampling=None))
    return kept


def training_tasks(environment: Environment, n: int, skip: int, known: frozenset[str] = frozenset()) -> list[Task]:
    """n tasks, not held out and no ``known`` prompt, after the first ``skip`` such; the last n where the data end before."""
    stream = (t for t in environment.tasks() if not t.held_out and t.prompt_hash not in known)
    return list(deque(islice(stream, skip + n), maxlen=n))


async def oracle_rows(live: Live, environments: Sequence[Environment], n: int) -> list[Trajectory]:
    """n worked reference trajectories, interleaved over the environments that have an oracle."""
    able = [e for e in environments if e.reference(training_tasks(e, 1, 0)[0]) is not None]
    share = -(-n // max(len(able), 1))
    columns = [await rows_of_oracles(training_tasks(e, share, AHEAD), e, live.renderer) for e in able]
    return [row for rank in range(share) for column in columns if rank < len(column) for row in (column[rank],)][:n]

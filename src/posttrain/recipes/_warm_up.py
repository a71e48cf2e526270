"""The SFT warm-up of a recipe: worked reference trajectories, then rejection sampling.

Differs from the textbook in being short on purpose: a policy sharpened by long SFT leaves RLVR few groups in which some
attempts pass and others fail. Quality over quantity: few rows, each judged right by the family's own verifier, seen ``epochs``
times.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from posttrain.losses._base import Loss
from posttrain.losses.cross_entropy import CrossEntropy
from posttrain.recipes._ranges import require_at_least
from posttrain.recipes._rehearsal import Rehearsal
from posttrain.recipes._sft_rows import AHEAD, judged_right, learnt_rows, oracle_rows, training_tasks, verified_rows
from posttrain.recipes._stages import note_dropped, sample
from posttrain.recipes._usage import used
from posttrain.train.publish import publish
from posttrain.types import Trajectory

if TYPE_CHECKING:
    from posttrain.envs._base import Environment
    from posttrain.progress import Progress
    from posttrain.recipes._live import Live
    from posttrain.store.run_dir import RunDir


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
        rows = await self.worked_rows(live, environments, run, progress, stage)
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

    async def worked_rows(
        self, live: Live, environments: Sequence[Environment], run: RunDir, progress: Progress, stage: str
    ) -> list[Trajectory]:
        """The oracle rows; how many were not judged right, and so are not learnt, is said in the log and listed in an event."""
        made = await oracle_rows(live, environments, self.steps * self.rows_per_step)
        rows, refused = await judged_right(live, environments, made)
        if refused:
            said = ", ".join(f"{n} {status}" for status, n in Counter(status for _, status in refused).items())
            progress.log(
                f"warm-up: left out {len(refused)} of {len(made)} worked answers that their own verifiers do not "
                f"judge right ({said}), the first to {refused[0][0]}"
            )
            run.write_event(kind="worked_answers_refused", stage=stage, step=0, num=len(refused), rows=refused)
        return rows

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
        note_dropped(run, stage, step, result.dropped)
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
        if not requests:
            progress.log("rejection sampling: no task is left to ask (raise warm_up.rejection_tasks, or bring more rows)")
            return []
        groups = await sample(
            live, requests, run, stage, step, group_size=self.rejection_samples, temperature=self.temperature, seed=seed
        )
        kept = verified_rows(groups)
        run.write_event(kind="rejection_sampling", stage=stage, step=step, tasks=len(groups), kept=len(kept))
        progress.log(f"rejection sampling: kept {len(kept)} verified answers of {len(groups)} tasks")
        return kept

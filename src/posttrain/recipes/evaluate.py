"""Evaluation: rollout, verify, store; no step is taken.

Temperature 0 and one answer a task unless asked otherwise. Every trajectory is kept: `posttrain eval compare` pairs two runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from posttrain.engines.native import Native
from posttrain.envs._base import Environment
from posttrain.errors import UsageError
from posttrain.evals.suite import few_shot, held_out_tasks
from posttrain.recipes._clock import Clock
from posttrain.recipes._environments import require_distinct, say_repeats
from posttrain.recipes._live import Precision, open_engine
from posttrain.recipes._ranges import require_at_least
from posttrain.recipes._stages import evaluation, finish
from posttrain.rollout.scripted import check_environments

if TYPE_CHECKING:
    from posttrain.progress import Progress
    from posttrain.store.run_dir import RunDir


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measures ``model`` on ``eval_tasks`` held-out tasks of each environment; ``few_shot`` examples go before each."""

    model: str = "smollm2-135m-instruct"
    device: str = "cpu"
    precision: Precision = "auto"
    threads: int = 0
    seed: int = 0
    environments: tuple[Environment, ...] = field(default=(), metadata={"kind": "envs"})
    engine: Native = field(default_factory=Native)
    eval_tasks: int = 32
    few_shot: int = 0
    samples: int = 1
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_at_least(self, threads=0, seed=0, eval_tasks=1, few_shot=0, samples=1, temperature=0)

    def run(self, run: RunDir, progress: Progress) -> dict[str, Any]:
        """Runs or resumes the evaluation in ``run``; returns its results, with the table as text."""
        return asyncio.run(self.work(run, progress))

    async def work(self, run: RunDir, progress: Progress) -> dict[str, Any]:
        """The job, top to bottom."""
        if not self.environments:
            raise UsageError("there is nothing to evaluate on: name environments, as [[environments]] tables")
        require_distinct(environments=self.environments)
        clock = Clock(run)
        tasks = {e.name: held_out_tasks(e, self.eval_tasks) for e in self.environments}
        if self.few_shot:
            tasks = {e.name: [few_shot(e, t, self.few_shot) for t in tasks[e.name]] for e in self.environments}
        async with open_engine(
            self.model, self.engine, precision=self.precision, device=self.device, threads=self.threads
        ) as engine:
            say_repeats(self.environments, progress)
            await check_environments(self.environments, engine.renderer)
            found = await evaluation(
                "eval",
                engine=engine,
                environments=self.environments,
                tasks=tasks,
                run=run,
                progress=progress,
                seed=self.seed,
                concurrency=self.engine.max_slots,
                samples=self.samples,
                temperature=self.temperature,
            )
        return finish(run, {"eval": found}, (), clock, self.seed)

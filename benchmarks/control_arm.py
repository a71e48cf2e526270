"""RLVR against more SFT: from a run's warm-up checkpoint, SFT goes on for as much process CPU time as RLVR took.

    python -m benchmarks.control_arm RUN [--arm rows|fixed|iterated] [--json]

Rows are the warm-up's own, oracle rows and verified answers, and rejection-sampled answers to new tasks (the shortest verified
one of each), at the warm-up's learning rate. Three ways to go on:

* ``rows``: epochs over what the warm-up had, its rejection-sampled answers among them; nothing new is sampled.
* ``fixed``: sampled once, from the warm-up checkpoint, for a third of the time; then epochs over all rows. Rejection-sampling
  fine-tuning (2308.01825): supervised learning proper, as nothing is sampled from what it trains.
* ``iterated``: before every pair of steps, from the policy as it is then. Expert iteration (1705.08439, 2312.06585): itself
  reinforcement learning, without negatives; the strongest reading of "more SFT".

All are judged on the run's held-out tasks. The ratio is RLVR's pass rate over the control's; the bar holds when the
paired interval of the difference lies above 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from posttrain import options
from posttrain.envs._base import Environment
from posttrain.evals.compare import compare
from posttrain.evals.suite import evaluate, held_out_tasks
from posttrain.progress import Progress
from posttrain.recipes._live import Live, open_live
from posttrain.recipes._sft_rows import learnt_rows, verified_rows
from posttrain.recipes.rlvr import Rlvr
from posttrain.rollout.workers import rollout
from posttrain.store.run_dir import RunDir
from posttrain.train.publish import publish
from posttrain.types import Sampling, Task, Trajectory

ARMS = ("rows", "fixed", "iterated")
SAMPLING_SHARE = 1 / 3  # of the budget, in the arm that samples once


@dataclass
class Control:
    """The live control arm: where its tasks, its rows and its time stand."""

    recipe: Rlvr
    live: Live
    environments: Sequence[Environment]
    known: list[Trajectory]
    budget: float
    progress: Progress
    rounds: int = 0
    steps: int = 0
    kept_rows: int = 0

    def __post_init__(self) -> None:
        self.streams: dict[str, Iterator[Task]] = {e.name: (t for t in e.tasks() if not t.held_out) for e in self.environments}
        self.began = time.process_time()

    def spent(self) -> float:
        """Process CPU seconds so far."""
        return time.process_time() - self.began

    async def sample(self) -> list[Trajectory]:
        """New tasks of every environment, several answers each: the shortest verified one a task, as SFT rows."""
        warm_up, streams = self.recipe.warm_up, self.streams
        share = -(-warm_up.rejection_tasks // len(self.environments))
        requests = [(next(streams[e.name]), e, 1000 + self.rounds) for e in self.environments for _ in range(share)]
        sampling = Sampling(temperature=warm_up.temperature, max_tokens=max(t.limits.max_tokens for t, _, _ in requests))
        size, seed = warm_up.rejection_samples, self.recipe.seed
        groups = await rollout(
            requests, self.live.engine, group_size=size, seed=seed, sampling=sampling, concurrency=self.live.slots
        )
        kept = verified_rows(groups)
        self.rounds += 1
        self.kept_rows += len(kept)
        self.progress.update(min(round(self.spent()), round(self.budget)), kept=len(kept))
        return kept

    async def step(self, rows: Sequence[Trajectory]) -> None:
        """One SFT step, where there are rows."""
        if rows:
            self.live.policy.step(rows, self.recipe.warm_up.loss, lr=self.recipe.warm_up.lr)
            await publish(self.live.policy, self.live.engine)
            self.steps += 1

    async def fixed(self) -> None:
        """Sample first, then epochs over all."""
        rows = list(self.known)
        while self.spent() < self.budget * SAMPLING_SHARE:
            rows += await self.sample()
        await self.rows(rows)

    async def rows(self, rows: Sequence[Trajectory]) -> None:
        """Epochs in random order until the time is up."""
        rng, size, queue = random.Random(self.recipe.seed), 2 * self.recipe.warm_up.rows_per_step, []
        while self.spent() < self.budget:
            if len(queue) < size:
                queue += rng.sample(rows, len(rows))
            await self.step(queue[:size])
            queue = queue[size:]
            self.progress.update(min(round(self.spent()), round(self.budget)), steps=self.steps)

    async def iterated(self) -> None:
        """In turns: sample, one step on the warm-up's rows, one on the answers kept."""
        size = self.recipe.warm_up.rows_per_step
        while self.spent() < self.budget:
            at = self.rounds * size % len(self.known)
            kept = await self.sample()
            for rows in ((self.known + self.known)[at : at + size], kept):
                await self.step(rows)


async def control(run: RunDir, arm: str, progress: Progress) -> dict[str, Any]:
    """Trains and evaluates one control arm of one finished run."""
    recipe = options.recipe(options.load(run.options), str(run.path))
    assert isinstance(recipe, Rlvr)
    environments = recipe.training_environments()
    everywhere = (*environments, *recipe.transfer)
    budget = sum(row["cpu_seconds"] for row in run.metrics("rlvr"))
    known = learnt_rows(run)
    tasks = {e.name: held_out_tasks(e, recipe.eval_tasks) for e in everywhere}
    warm = next(c["checkpoint"] for c in run.commits() if c["stage"] == "warm_up")
    precision = run.info.get("precision", recipe.precision)  # as the run measured it: both arms compute alike
    async with open_live(
        recipe.model, recipe.engine, recipe.train, precision=precision, device=recipe.device, threads=recipe.threads
    ) as live:
        live.policy.restore(run.checkpoints / warm)
        await publish(live.policy, live.engine)
        progress.stage("control", round(budget))
        at = Control(recipe, live, environments, known, budget, progress)
        await {"rows": partial(at.rows, known), "fixed": at.fixed, "iterated": at.iterated}[arm]()
        spent = at.spent()
        after = await evaluate(everywhere, live.engine, tasks=tasks, seed=recipe.seed, concurrency=live.slots)
    transfer = [e.name for e in recipe.transfer]
    figures = compare(after, list(run.trajectories("after_rl")), names=("control", "rlvr"), transfer=transfer, seed=recipe.seed)
    overall = figures["overall"]
    return {
        "name": f"control_arm.{arm}",
        "ratio": overall["after"] / max(overall["before"], 1e-9),
        "bar": 1.0,
        "holds": overall["interval"][0] > 0,
        "control": overall["before"],
        "rlvr": overall["after"],
        "difference": overall["difference"],
        "interval": overall["interval"],
        "families": {name: [round(row["before"], 3), round(row["after"], 3)] for name, row in figures["families"].items()},
        "cpu_seconds": {"rlvr": budget, "control": spent},
        "steps": at.steps,
        "oracle_rows": sum(t.metadata.get("source") == "oracle" for t in known),
        "warm_up_rows": len(known),
        "rejection_rows": at.kept_rows,
        "seed": recipe.seed,
    }


def main() -> None:
    """Prints one JSON object, or its lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--arm", choices=ARMS, default="iterated")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with Progress() as progress:
        figures = asyncio.run(control(RunDir.open(given.run), given.arm, progress))
    print(json.dumps(figures) if given.json else "\n".join(f"{k}: {v}" for k, v in figures.items()))


if __name__ == "__main__":
    main()

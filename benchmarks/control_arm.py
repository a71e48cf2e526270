"""RLVR against more SFT: from a run's warm-up checkpoint, SFT goes on for as much process CPU time as RLVR took.

    python -m benchmarks.control_arm RUN [--json]

The control arm trains on the warm-up's own oracle rows and, round after round, on fresh rejection-sampled answers (new tasks
each time, the verified ones kept), at the warm-up's learning rate. Both arms are judged on the same held-out tasks. The ratio is
RLVR's pass rate over the control's; the bar holds when the paired interval of the difference lies above 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import replace
from typing import Any

from posttrain import options
from posttrain.evals.compare import compare
from posttrain.evals.suite import evaluate, held_out_tasks
from posttrain.progress import Progress
from posttrain.recipes._live import open_live
from posttrain.recipes.rlvr import Rlvr
from posttrain.rollout.workers import rollout
from posttrain.store.run_dir import RunDir
from posttrain.train.publish import publish
from posttrain.types import Sampling, Trajectory


async def control(run: RunDir, progress: Progress) -> dict[str, Any]:
    """Trains and evaluates the control arm of one finished run."""
    recipe = options.recipe(options.load(run.options), str(run.path))
    assert isinstance(recipe, Rlvr)
    environments = recipe.training_environments()
    everywhere = (*environments, *recipe.transfer)
    budget = sum(row["cpu_seconds"] for row in run.metrics("rlvr"))
    warmed = {t.id: replace(t, advantage=1.0) for t in run.trajectories("warm_up") if t.metadata.get("source") == "oracle"}
    oracle = list(warmed.values())  # each once, however many epochs it was seen
    tasks = {e.name: held_out_tasks(e, recipe.eval_tasks) for e in everywhere}
    warm = next(c["checkpoint"] for c in run.commits() if c["stage"] == "warm_up")
    async with open_live(recipe.model, recipe.engine, recipe.train, precision=recipe.precision, device=recipe.device) as live:
        live.policy.restore(run.checkpoints / warm)
        await publish(live.policy, live.engine)
        streams = {e.name: (t for t in e.tasks() if not t.held_out) for e in environments}
        began, rounds, steps, kept_rows = time.process_time(), 0, 0, 0
        progress.stage("control", round(budget))
        while (spent := time.process_time() - began) < budget:
            share = -(-recipe.warm_up.rejection_tasks // len(environments))
            requests = [(next(streams[e.name]), e, 1000 + rounds) for e in environments for _ in range(share)]
            most = max(task.limits.max_tokens for task, _, _ in requests)
            sampling = Sampling(temperature=recipe.warm_up.temperature, max_tokens=most)
            size = recipe.warm_up.rejection_samples
            groups = await rollout(requests, live.engine, group_size=size, seed=recipe.seed, sampling=sampling)
            kept = [row for g in groups for row in best(g.trajectories)]
            at = rounds * recipe.warm_up.rows_per_step % len(oracle)
            for rows in ((oracle + oracle)[at : at + recipe.warm_up.rows_per_step], kept):
                if rows:
                    live.policy.step(rows, recipe.warm_up.loss, lr=recipe.warm_up.lr)
                    await publish(live.policy, live.engine)
                    steps += 1
            rounds, kept_rows = rounds + 1, kept_rows + len(kept)
            progress.update(min(round(spent), round(budget)), kept=len(kept))
        spent = time.process_time() - began
        after = await evaluate(everywhere, live.engine, tasks=tasks, seed=recipe.seed)
    transfer = [e.name for e in recipe.transfer]
    figures = compare(after, list(run.trajectories("after_rl")), names=("control", "rlvr"), transfer=transfer, seed=recipe.seed)
    overall = figures["overall"]
    return {
        "name": "control_arm",
        "ratio": overall["after"] / max(overall["before"], 1e-9),
        "bar": 1.0,
        "holds": overall["interval"][0] > 0,
        "control": overall["before"],
        "rlvr": overall["after"],
        "difference": overall["difference"],
        "interval": overall["interval"],
        "cpu_seconds": {"rlvr": budget, "control": spent},
        "steps": steps,
        "oracle_rows": len(oracle),
        "rejection_rows": kept_rows,
        "seed": recipe.seed,
    }


def best(attempts: tuple[Trajectory, ...]) -> list[Trajectory]:
    """The shortest verified attempt of a group as an SFT row."""
    good = [t for t in attempts if t.verdict is not None and t.verdict.status == "ok"]
    return [replace(t, advantage=1.0, sampling=None) for t in sorted(good, key=lambda t: (t.num_sampled, t.attempt))[:1]]


def main() -> None:
    """Prints one JSON object, or its lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with Progress() as progress:
        figures = asyncio.run(control(RunDir.open(given.run), progress))
    print(json.dumps(figures) if given.json else "\n".join(f"{k}: {v}" for k, v in figures.items()))


if __name__ == "__main__":
    main()

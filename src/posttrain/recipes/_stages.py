"""Steps that several recipes take: evaluate on held-out tasks, save a point to come back to, sum up a step's figures."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from posttrain.dashboard.report import write_report
from posttrain.errors import HostError, InvalidRun
from posttrain.evals.compare import table, table_text
from posttrain.evals.suite import evaluate
from posttrain.recipes._usage import peak_memory, used
from posttrain.train.checkpoint import problem
from posttrain.train.publish import publish
from posttrain.types import Group, Task, Trajectory

CALIBRATION = 3  # RLVR steps that are timed before the rest of a time budget is turned into a number of steps
RECENT = 10  # steps that are looked at when that number is corrected, at checkpoints and at its end
MIXED = 0.6  # share of mixed groups that is expected at most
ENDING = 8.0  # seconds for export and report

if TYPE_CHECKING:
    from posttrain.engines._base import Engine
    from posttrain.envs._base import Environment
    from posttrain.pools._base import OpenPool
    from posttrain.progress import Progress
    from posttrain.recipes._live import Live
    from posttrain.store.run_dir import RunDir


async def evaluation(
    stage: str,
    engine: Engine,
    environments: Sequence[Environment],
    tasks: Mapping[str, Sequence[Task]],
    run: RunDir,
    progress: Progress,
    seed: int,
    samples: int = 1,
    temperature: float = 0.0,
) -> list[Trajectory]:
    """Attempts at ``tasks``, every trajectory stored; read back where the stage was committed before."""
    if run.result(stage) is not None:
        return list(run.trajectories(stage))
    progress.stage(stage, sum(len(t) for t in tasks.values()))
    began, cpu = time.monotonic(), time.process_time()
    trajectories = await evaluate(
        environments,
        engine,
        tasks=tasks,
        samples=samples,
        temperature=temperature,
        seed=seed,
        progress=progress,
        events=partial(run.write_event, stage=stage, step=0),
    )
    judged = sum(t.verdict is not None and t.verdict.trains and t.outcome != "infra_error" for t in trajectories)
    if trajectories and not judged:
        raise InvalidRun(
            f"none of the {len(trajectories)} attempts of {stage!r} could be judged, which is our side's failure and no score; "
            f"the last: {trajectories[-1].error}. Mend that, then resume the run"
        )
    passed = sum(1 for t in trajectories if t.verdict is not None and t.verdict.status == "ok")
    figures = {"pass_rate": passed / max(len(trajectories), 1), "seconds": time.monotonic() - began}
    run.write_trajectories(stage, 0, trajectories)
    run.write_metrics(stage, 0, {**figures, **used(cpu)})
    run.commit(stage, 0, result=figures)
    progress.log(f"{stage}: {passed} of {len(trajectories)} passed ({figures['pass_rate']:.3f})")
    return trajectories


def save_point(
    run: RunDir, stage: str, step: int, live: Live, pool: OpenPool, result: dict[str, Any] | None, clock: Clock
) -> None:
    """Writes a checkpoint, then commits the step that it holds; of RLVR's only the last two are kept."""
    name = f"{stage}-{step:05d}"
    began = time.monotonic()
    live.policy.save(run.checkpoints / name, extra={"pool": pool.state()})
    run.note(save_seconds=time.monotonic() - began, seconds=clock.seconds)
    run.commit(stage, step, result=result, checkpoint=name)
    for old in sorted(run.checkpoints.glob("rlvr-*"))[:-2]:
        shutil.rmtree(old)


def require_space(run: RunDir, live: Live, checkpoints: int) -> None:
    """Refuses to begin a run whose checkpoints and model the disk cannot hold. Raises HostError.

    One that goes on is not looked at: part of what it writes is there already.
    """
    if run.commits():
        return
    exported = sum(weight.nbytes for weight in live.policy.weights().values())
    need, free = checkpoints * live.policy.checkpoint_bytes + exported, shutil.disk_usage(run.path).free
    if free < need:
        raise HostError(
            f"the disk of {run.path} has {free / 1e9:.1f} GB free, and this run writes at least {need / 1e9:.1f} GB "
            f"({checkpoints} checkpoints and the model); free some, or choose another disk with --out"
        )


async def go_back(run: RunDir, live: Live, pool: OpenPool, progress: Progress) -> tuple[str, int]:
    """Puts policy and pool where the newest whole checkpoint left them; ("", -1) for a run that has none.

    What was committed after a checkpoint that proves damaged is undone with it.
    """
    commits = [c for c in run.commits() if "checkpoint" in c]
    for commit in reversed(commits):
        damage = problem(run.checkpoints / commit["checkpoint"])
        if not damage:
            extra = live.policy.restore(run.checkpoints / commit["checkpoint"])
            pool.restore(extra["pool"])
            await publish(live.policy, live.engine)
            progress.log(f"going on from {commit['checkpoint']}")
            return commit["stage"], commit["step"]
        progress.log(f"skipped a damaged checkpoint: {damage}")
        earlier = [c["step"] for c in commits if c["stage"] == commit["stage"] and c["step"] < commit["step"]]
        run.rewind(commit["stage"], max(earlier, default=None))
        for later in ("after_sft", "after_rl") if commit["stage"] == "warm_up" else ("after_rl",):
            run.rewind(later, None)
    return "", -1


class Clock:
    """How long a run has worked, over all of its sittings, in seconds."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.began = time.monotonic()
        self.earlier = float(run.info.get("seconds", 0.0))

    @property
    def seconds(self) -> float:
        """Seconds worked so far."""
        return self.earlier + time.monotonic() - self.began

    def steps_that_fit(self, minutes: float, most: int) -> int:
        """All RLVR steps that the budget allows, by what the latest of them took; at least those that were done.

        A step takes longer once more groups are mixed, since only those train: the training time of the first few is scaled
        to ``MIXED``. The last evaluation, the checkpoints and the export are left room.
        """
        rows = self.run.metrics()
        done = [row for row in rows if row["stage"] == "rlvr"]
        recent = done[-RECENT:]
        rollout, training = (sum(row[f"{part}_seconds"] for row in recent) / len(recent) for part in ("rollout", "train"))
        if len(done) <= CALIBRATION:
            training *= MIXED / max(sum(row["mixed_groups"] for row in recent) / len(recent), 0.1 / CALIBRATION)
        saving = self.run.info.get("save_seconds", 0.0)
        looks = [row["seconds"] for row in rows if row["stage"] in ("before", "after_sft")]
        left = minutes * 60 - self.seconds - max(looks, default=0.0) - 2 * saving - ENDING
        return max(len(done), min(most, len(done) + int(left / (1.05 * (rollout + training)))))


def finish(
    run: RunDir, stages: Mapping[str, Sequence[Trajectory]], transfer: Sequence[str], clock: Clock, seed: int
) -> dict[str, Any]:
    """The table, results.json and the report; the run is finished."""
    results = table(stages, transfer=transfer, seed=seed) | {
        "minutes": clock.seconds / 60,
        "peak_memory_bytes": peak_memory(),
        "model": str(run.model),
        "report": str(run.path / "report.html"),
    }
    results["table"] = table_text(results)
    run.write_results(results)
    run.note(seconds=clock.seconds)
    write_report(run, run.path / "report.html")  # before the status: a full disk here can still be resumed
    run.set_status("finished")
    return results


def group_figures(groups: Sequence[Group]) -> dict[str, float]:
    """Rewards, pass rates and failure shares of one step's groups, overall and by environment."""
    trajectories = [t for g in groups for t in g.trajectories]
    judged = [t for t in trajectories if t.verdict is not None and t.verdict.trains and t.outcome != "infra_error"]
    n = max(len(judged), 1)
    figures = {
        "reward": sum(t.reward or 0.0 for t in judged) / n,
        "pass_rate": sum(t.verdict is not None and t.verdict.status == "ok" for t in judged) / n,
        "mixed_groups": sum(g.mixed for g in groups) / max(len(groups), 1),
        "zero_variance_groups": sum(not g.mixed for g in groups) / max(len(groups), 1),
        "malformed": sum(t.verdict is not None and t.verdict.status == "malformed" for t in judged) / n,
        "truncated": sum(t.outcome == "truncated" for t in judged) / n,
        "attempts": float(len(trajectories)),
        "infra_errors": float(len(trajectories) - len(judged)),
        "sampled_tokens": float(sum(t.num_sampled for t in trajectories)),
        "response_tokens": sum(t.num_sampled for t in judged) / n,
    }
    for name in sorted({g.task.environment for g in groups}):
        mine = [t for t in judged if t.task.environment == name]
        if mine:
            passed = sum(t.verdict is not None and t.verdict.status == "ok" for t in mine)
            figures[f"pass_rate/{name}"] = passed / len(mine)
            figures[f"reward/{name}"] = sum(t.reward or 0.0 for t in mine) / len(mine)
    return figures

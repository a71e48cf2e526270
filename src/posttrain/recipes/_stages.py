"""Steps that several recipes take: evaluate on held-out tasks, sample groups, sum up a step's figures, write the results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from posttrain.dashboard.report import write_report
from posttrain.errors import InvalidRun
from posttrain.evals.compare import table, table_text
from posttrain.evals.outcomes import is_judged, status_of
from posttrain.evals.suite import evaluate
from posttrain.recipes._usage import peak_memory, used
from posttrain.rollout.workers import rollout
from posttrain.types import Group, Sampling, Task, Trajectory

if TYPE_CHECKING:
    from posttrain.engines._base import Engine
    from posttrain.envs._base import Environment
    from posttrain.progress import Progress
    from posttrain.recipes._clock import Clock
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
    concurrency: int,
    samples: int = 1,
    temperature: float = 0.0,
) -> list[Trajectory]:
    """Attempts at ``tasks``, ``concurrency`` at a time, every one stored; read back where the stage was committed before."""
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
        concurrency=concurrency,
        progress=progress,
        events=partial(run.write_event, stage=stage, step=0),
    )
    require_judged(trajectories, repr(stage))
    judged, passed = sum(map(is_judged, trajectories)), sum(status_of(t) == "ok" for t in trajectories)
    figures = {"pass_rate": passed / judged} if judged else {}
    figures["seconds"] = time.monotonic() - began
    run.write_trajectories(stage, 0, trajectories)
    run.write_metrics(stage, 0, {**figures, **used(cpu)})
    run.commit(stage, 0, result=figures)
    lost = f", {len(trajectories) - judged} not judged" if judged < len(trajectories) else ""
    progress.log(f"{stage}: {passed} of {judged} passed ({passed / max(judged, 1):.3f}){lost}")
    return trajectories


def require_judged(trajectories: Sequence[Trajectory], what: str) -> None:
    """Raises ``InvalidRun`` where not one of the attempts of ``what`` is a result."""
    if trajectories and not any(map(is_judged, trajectories)):
        raise InvalidRun(
            f"none of the {len(trajectories)} attempts of {what} could be judged, which is our side's failure and no score; "
            f"the last: {trajectories[-1].error}. Mend that, then resume the run"
        )


async def sample(
    live: Live,
    requests: Sequence[tuple[Task, Environment, int]],
    run: RunDir,
    stage: str,
    step: int,
    *,
    group_size: int,
    temperature: float,
    seed: int,
) -> list[Group]:
    """Judged groups at (task, environment, visit), by the policy as it stands; as many attempts at a time as there are slots."""
    return await rollout(
        requests,
        live.engine,
        group_size=group_size,
        seed=seed,
        sampling=Sampling(temperature=temperature, max_tokens=max(task.limits.max_tokens for task, _, _ in requests)),
        concurrency=live.slots,
        events=partial(run.write_event, stage=stage, step=step),
        expected=(live.policy.version, live.policy.weights_hash()),
    )


def note_dropped(run: RunDir, stage: str, step: int, dropped: Sequence[tuple[str, str]]) -> None:
    """One event that lists, by reason, the trajectory ids that a training step left out; none where it left out nothing."""
    reasons: dict[str, list[str]] = {}
    for name, reason in dropped:
        reasons.setdefault(reason, []).append(name)
    if reasons:
        run.write_event(kind="dropped", stage=stage, step=step, num=len(dropped), reasons=reasons)


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
    """Rewards, pass rates and failure shares of one step's groups, overall and by environment.

    Shares are of judged attempts, or of groups that have one; a share of none is left out.
    """
    trajectories = [t for g in groups for t in g.trajectories]
    judged = [t for t in trajectories if is_judged(t)]
    statuses = Counter(status_of(t) for t in trajectories)
    figures = {
        "attempts": float(len(trajectories)),
        "infra_errors": float(statuses["infra_error"]),
        "unverifiable": float(statuses["unverifiable"]),
        "sampled_tokens": float(sum(t.num_sampled for t in trajectories)),
    }
    for name in sorted({t.task.environment for t in judged}):
        figures |= {f"{k}/{name}": v for k, v in _rates([t for t in judged if t.task.environment == name]).items()}
    if judged:
        figures |= _rates(judged) | {
            "malformed": statuses["malformed"] / len(judged),
            "truncated": sum(t.outcome == "truncated" for t in judged) / len(judged),
            "response_tokens": sum(t.num_sampled for t in judged) / len(judged),
        }
    if compared := [g for g in groups if g.trained]:
        mixed = sum(g.mixed for g in compared) / len(compared)
        figures |= {"mixed_groups": mixed, "zero_variance_groups": 1 - mixed}
    return figures


def _rates(judged: Sequence[Trajectory]) -> dict[str, float]:
    return {
        "pass_rate": sum(status_of(t) == "ok" for t in judged) / len(judged),
        "reward": sum(t.reward or 0.0 for t in judged) / len(judged),
    }

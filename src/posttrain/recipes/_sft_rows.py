"""Rows for SFT: worked answers of the environments that have an oracle, and the policy's own answers that were judged right."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from posttrain.evals.outcomes import status_of
from posttrain.rollout.scripted import replay, rows_of_oracles
from posttrain.types import Group, Task, Trajectory

if TYPE_CHECKING:
    from posttrain.envs._base import Environment
    from posttrain.recipes._live import Live
    from posttrain.store.run_dir import RunDir

AHEAD = 512  # tasks of a stream that the warm-up leaves to the pool, which begins with them


def training_tasks(environment: Environment, n: int, skip: int, known: frozenset[str] = frozenset()) -> list[Task]:
    """n tasks, not held out and no ``known`` prompt, after the first ``skip`` such; the last n where the data end before."""
    stream = (t for t in environment.tasks() if not t.held_out and t.prompt_hash not in known)
    return list(deque(islice(stream, skip + n), maxlen=n))


async def oracle_rows(live: Live, environments: Sequence[Environment], n: int) -> list[Trajectory]:
    """At most n worked reference trajectories, not judged, interleaved over the environments that have an oracle."""
    able = [e for e in environments if any(e.reference(task) is not None for task in training_tasks(e, 1, 0))]
    share = -(-n // max(len(able), 1))
    columns = [await rows_of_oracles(training_tasks(e, share, AHEAD), e, live.renderer) for e in able]
    return [row for rank in range(share) for column in columns if rank < len(column) for row in (column[rank],)][:n]


async def judged_right(
    live: Live, environments: Sequence[Environment], rows: Sequence[Trajectory]
) -> tuple[list[Trajectory], list[tuple[str, str]]]:
    """The oracle rows whose answer its own verifier judges ok, and (trajectory id, status) of the others."""
    by_name = {e.name: e for e in environments}
    kept, refused = [], []
    for row in rows:
        environment = by_name[row.task.environment]
        response = environment.reference(row.task)
        status = "" if response is None else status_of(await replay(environment, row.task, response, live.renderer))
        if status == "ok":
            kept.append(row)
        else:
            refused.append((row.id, status))
    return kept, refused


def verified_rows(groups: Sequence[Group]) -> list[Trajectory]:
    """The shortest verified attempt of each group as an SFT row: it is least likely to be right by luck after a wrong step.

    It is learnt as it stands, like a row that nobody sampled: without the distribution that drew it and the logprobs under it.
    """
    kept = []
    for group in groups:
        good = [t for t in group.trained if status_of(t) == "ok"]
        if good:
            best = min(good, key=lambda t: (t.num_sampled, t.attempt))
            turns = tuple(replace(turn, rollout_logprobs=()) for turn in best.turns)
            kept.append(replace(best, turns=turns, advantage=1.0, sampling=None))
    return kept


def learnt_rows(run: RunDir) -> list[Trajectory]:
    """The rows of a run's warm-up, oracle's and verified ones, each once however often it was seen."""
    return [replace(t, advantage=1.0) for t in {t.id: t for t in run.trajectories("warm_up")}.values()]

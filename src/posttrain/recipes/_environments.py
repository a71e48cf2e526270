"""The environments that a recipe names: put together from its options, and told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.envs._base import Environment
from posttrain.envs.rows import Rows
from posttrain.errors import UsageError
from posttrain.evals.suite import few_shot
from posttrain.types import Task

if TYPE_CHECKING:
    from posttrain.progress import Progress


def own_rows(rows: Rows | None, data: Path | None, reward: Path | None) -> tuple[Rows, ...]:
    """The user's own rows, ``data`` and ``reward`` put in where they are given; () for none. Raises ``UsageError``."""
    if rows is None and data is None:
        if reward is not None:
            raise UsageError(f"reward = {str(reward)!r} judges your own rows, and there are none: give data=ROWS.jsonl too")
        return ()
    rows = rows if rows is not None else Rows()
    rows = rows if data is None else replace(rows, data=data)
    return (rows if reward is None else replace(rows, reward=reward),)


def require_distinct(**entries: Sequence[Environment]) -> None:
    """Raises ``UsageError`` naming two entries of one name: tasks, figures and the pool are told apart by it."""
    seen: dict[str, str] = {}
    for option, environments in entries.items():
        for i, environment in enumerate(environments):
            here = option if option == "rows" else f"{option}[{i}]"
            if environment.name in seen:
                raise UsageError(
                    f"{seen[environment.name]} and {here} are both {environment.name}, and a name must be one environment's: "
                    "name it once (level = [0, 5] draws from several levels; what is in transfer never trains)"
                )
            seen[environment.name] = here


def say_repeats(environments: Sequence[Environment], progress: Progress) -> None:
    """One line for each file of rows of which some were dropped, since they ask what an earlier one asks."""
    for environment in environments:
        if isinstance(environment, Rows) and environment.num_dropped:
            progress.log(f"{environment.name}: rows dropped: {environment.num_dropped}, the first: {environment.dropped[0]}")


def with_examples(environments: Sequence[Environment], tasks: Mapping[str, Sequence[Task]], k: int) -> dict[str, list[Task]]:
    """``tasks`` with k worked examples before each, by name, of the environments that have worked answers."""
    able = [e for e in environments if e.reference(tasks[e.name][0]) is not None]
    return {e.name: [few_shot(e, t, k) for t in tasks[e.name]] for e in able}

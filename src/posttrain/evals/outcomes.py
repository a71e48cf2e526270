"""What trajectories say about each task: pass rate, mean reward, and what is not a result at all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from posttrain.types import Trajectory

ItemKey = tuple[str, str]  # (environment, task id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One task's attempts in one arm. ``status`` is "ok" when at least half passed, else the commonest failure.

    ``num_unjudged`` counts infrastructure failures and unverifiable answers: never a pass, never a fail. ``pass_rate`` and
    ``reward`` are means over the judged attempts, nan where there is none.
    """

    key: ItemKey
    template: str
    prompt: str  # hash of the prompt without worked examples
    temperature: float | None
    num_judged: int
    num_unjudged: int
    num_passed: int
    pass_rate: float
    reward: float
    status: str
    trajectory_ids: tuple[str, ...]

    @property
    def family(self) -> str:
        """``<domain>/<family>``."""
        return self.key[0]

    @property
    def cluster(self) -> tuple[str, str]:
        """Wordings are what is resampled: (environment, template)."""
        return self.family, self.template


def is_judged(trajectory: Trajectory) -> bool:
    """Whether this attempt is a result: judged ok, wrong or malformed, with no failure of ours."""
    return trajectory.outcome != "infra_error" and trajectory.verdict is not None and trajectory.verdict.trains


def status_of(trajectory: Trajectory) -> str:
    """ok, wrong, malformed, unverifiable or infra_error."""
    if trajectory.outcome == "infra_error" or trajectory.verdict is None:
        return "infra_error"
    return trajectory.verdict.status


def plain_prompt(trajectory: Trajectory) -> str:
    """Identifies the problem whatever worked examples stand before it, so that a 3-shot arm pairs with a plain one."""
    return str(trajectory.task.metadata.get("plain_prompt_hash", trajectory.task.prompt_hash))


def items(trajectories: Iterable[Trajectory]) -> dict[ItemKey, Item]:
    """Groups attempts by task, in order of first appearance."""
    groups: dict[ItemKey, list[Trajectory]] = {}
    for t in trajectories:
        groups.setdefault((t.task.environment, t.task.id), []).append(t)
    return {key: _item(key, group) for key, group in groups.items()}


def _item(key: ItemKey, group: list[Trajectory]) -> Item:
    judged = [t for t in group if is_judged(t)]
    statuses = Counter(status_of(t) for t in judged)
    n = len(judged)
    failures = Counter({s: c for s, c in statuses.items() if s != "ok"})
    passed = n > 0 and 2 * statuses["ok"] >= n
    status = "ok" if passed else failures.most_common(1)[0][0] if failures else "infra_error"
    first = group[0]
    return Item(
        key=key,
        template=first.task.template,
        prompt=plain_prompt(first),
        temperature=next((t.sampling.temperature for t in group if t.sampling), None),
        num_judged=n,
        num_unjudged=len(group) - n,
        num_passed=statuses["ok"],
        pass_rate=statuses["ok"] / n if n else math.nan,
        reward=sum(map(_reward, judged)) / n if n else math.nan,
        status=status,
        trajectory_ids=tuple(t.id for t in group),
    )


def _reward(trajectory: Trajectory) -> float:
    """The reward as it may have been shaped, the verdict's own where it was not set."""
    assert trajectory.verdict is not None
    return trajectory.verdict.reward if trajectory.reward is None else trajectory.reward


def attempt_numbers(arm: Iterable[Item]) -> list[int]:
    """The numbers of attempts to speak of: 2, 4, 8 ... and the most that a task has judged; empty where that is 1."""
    most = max((item.num_judged for item in arm), default=0)
    return sorted({most, *(2**i for i in range(1, most.bit_length()) if 2**i < most)}) if most > 1 else []


def duplicates(trajectories: Iterable[Trajectory]) -> list[str]:
    """Ids of attempts that appear more than once in one arm."""
    counts = Counter((t.task.environment, t.id) for t in trajectories)
    return sorted(name for (_, name), n in counts.items() if n > 1)


def flips(before: dict[ItemKey, Item], after: dict[ItemKey, Item]) -> list[dict[str, Any]]:
    """Tasks whose status changed, losses first: ``{"task_id", "family", "kind": "malformed -> ok", "before", "after"}``.

    ``before`` and ``after`` name the trajectory to look at. A learned format (malformed -> ok) is told apart from a learned
    skill (wrong -> ok).
    """
    found = []
    for key, old in before.items():
        new = after.get(key)
        if new is None or not old.num_judged or not new.num_judged or old.status == new.status:
            continue
        found.append(
            {
                "task_id": key[1],
                "family": key[0],
                "kind": f"{old.status} -> {new.status}",
                "before": old.trajectory_ids[0],
                "after": new.trajectory_ids[0],
            }
        )
    return sorted(found, key=lambda f: (_severity(f["kind"]), f["family"], f["task_id"]))


def _severity(kind: str) -> int:
    old, new = kind.split(" -> ")
    return 0 if old == "ok" else 1 if new == "ok" else 2

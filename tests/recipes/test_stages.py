"""What steps say about themselves: shares are of what was judged, and what was left out is listed."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

from posttrain.progress import Progress
from posttrain.recipes import _stages
from posttrain.recipes._stages import evaluation, group_figures, note_dropped
from posttrain.store.run_dir import RunDir
from posttrain.types import Group, Message, Status, Task, Trajectory, Turn, Verdict


def attempts(name: str, *statuses: Status) -> Group:
    """One attempt for each status, rewarded 1 where ok."""
    task = Task(id=f"{name}/0", environment=name, prompt=(Message(role="user", content=name),))
    turns = (Turn(role="prompt", token_ids=(1,)), Turn(role="assistant", token_ids=(2, 3)))
    members = [
        Trajectory(
            task=task,
            attempt=i,
            turns=turns,
            outcome="infra_error" if status == "infra_error" else "finished",
            verdict=Verdict(status=status),
            reward=float(status == "ok") if status in ("ok", "wrong", "malformed") else None,
        )
        for i, status in enumerate(statuses)
    ]
    return Group(task=task, trajectories=tuple(members))


def test_what_was_not_judged_is_no_zero() -> None:
    lost = attempts("toy/lost", "infra_error", "infra_error")
    figures = group_figures([attempts("toy/a", "ok", "wrong", "infra_error", "unverifiable"), lost])
    assert figures["pass_rate"] == figures["reward"] == figures["pass_rate/toy/a"] == 0.5
    assert (figures["attempts"], figures["infra_errors"], figures["unverifiable"]) == (6, 3, 1)
    assert (figures["mixed_groups"], figures["zero_variance_groups"]) == (1, 0), "a group that was lost is neither"
    assert figures["response_tokens"] == 2 and not [k for k in figures if k.endswith("toy/lost")]
    assert group_figures([lost]) == {"attempts": 2, "infra_errors": 2, "unverifiable": 0, "sampled_tokens": 8 / 2}


def test_an_evaluation_divides_by_what_was_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = attempts("toy/a", "ok", "wrong", "wrong", "infra_error", "unverifiable")

    async def made(*args: Any, **kw: Any) -> list[Trajectory]:
        return list(group.trajectories)

    monkeypatch.setattr(_stages, "evaluate", made)
    said = io.StringIO()
    with RunDir.create(tmp_path / "run", {}) as run:
        asyncio.run(
            evaluation("eval", None, (), tasks={}, run=run, progress=Progress(said), seed=0, concurrency=1)  # type: ignore[arg-type]
        )
        assert run.metrics("eval")[0]["pass_rate"] == run.result("eval")["pass_rate"] == 1 / 3  # type: ignore[index]
    assert "eval: 1 of 3 passed (0.333), 2 not judged" in said.getvalue()


def test_what_a_step_left_out_is_one_event(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "run", {}) as run:
        note_dropped(run, "rlvr", 0, [])
        note_dropped(run, "rlvr", 1, [("a#0.0", "too_long"), ("b#0.0", "zero_advantage"), ("c#0.0", "too_long")])
        (event,) = run.events()
    assert (event["kind"], event["stage"], event["step"], event["num"]) == ("dropped", "rlvr", 1, 3)
    assert event["reasons"] == {"too_long": ["a#0.0", "c#0.0"], "zero_advantage": ["b#0.0"]}

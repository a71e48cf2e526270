"""A preview takes what a run takes, learns nothing, and says what it measured for what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.recipes import preview
from posttrain.train.policy import OpenPolicy, StepResult


@pytest.fixture
def table(tiny_model: Path, tmp_path: Path) -> dict[str, Any]:
    """Rows and a reward that even a random model earns parts of, so that the step is the recipe's own."""
    rows, reward = tmp_path / "rows.jsonl", tmp_path / "reward.py"
    rows.write_text("".join(json.dumps({"prompt": f"Say a word that goes with {n}."}) + "\n" for n in range(40)))
    reward.write_text("def reward(trajectory):\n    return sum(map(ord, trajectory.text)) % 7 / 7\n")
    return {
        "recipe": "rlvr",
        "model": str(tiny_model),
        "precision": "exact",
        "data": str(rows),
        "reward": str(reward),
        "rows": {"max_tokens": 12},
        "environments": [],
        "tasks_per_step": 3,
        "group_size": 4,
        "few_shot": 0,
        "eval_tasks": 8,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": {"name": "clipped"}},
        {"loss": {"name": "sum_of", "losses": [{"name": "clipped"}, {"name": "ref_kl"}]}, "train": {"reference": True}},
    ],
    ids=["clipped", "with a reference"],
)
def test_a_recipe_that_runs_can_be_previewed(
    table: dict[str, Any], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, float, int]] = []
    real = OpenPolicy.step

    def step(self: OpenPolicy, trajectories: Any, loss: Any, *, lr: float | None = None) -> StepResult:
        result = real(self, trajectories, loss, lr=lr)
        steps.append((type(loss).__name__, result.metrics["lr"], int(result.metrics["num_rows"])))
        return result

    monkeypatch.setattr(OpenPolicy, "step", step)
    result = preview.main({**table, **changes})  # type: ignore[arg-type]
    (name, lr, num_rows) = steps[0]
    assert len(steps) == 1 and name == {"clipped": "Clipped", "sum_of": "SumOf"}[changes["loss"]["name"]] and lr == 0.0
    assert 0 < num_rows <= 12 and len(result["tasks"]) == 3 and len(result["tasks"][0]["answers"]) == 4
    assert set(result["predicted"]) == {"rollout_seconds", "train_seconds", "step_seconds", "minutes"}
    assert result["peak_memory_so_far_bytes"] > 1e8 and "peak memory so far" in result["text"]


def test_no_more_attempts_at_a_time_than_the_engine_has_slots(table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = preview.rollout

    async def rollout(*args: Any, **options: Any) -> Any:
        asked.append(options["concurrency"])
        return await real(*args, **options)

    monkeypatch.setattr(preview, "rollout", rollout)
    preview.main({**table, "engine": {"max_slots": 5}})  # type: ignore[arg-type]
    assert asked == [5]

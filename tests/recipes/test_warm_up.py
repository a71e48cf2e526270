"""The warm-up on rows of one's own: only what was judged right is learnt, and having nothing to learn from is no crash."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import posttrain
from posttrain.progress import Progress
from posttrain.recipes._sft_rows import oracle_rows
from posttrain.store.run_dir import RunDir

RIGHT = "def reward(trajectory):\n    return trajectory.text.startswith('it is')\n"
ALWAYS = "def reward(trajectory):\n    return 1.0\n"


def warm(tmp_path: Path, model: Path, warm_up: dict[str, Any], *, reward: str = ALWAYS, every: int = 0, num: int = 60) -> str:
    """What a run with this warm-up and nothing else says; of its rows every ``every``-th shows a wrong answer."""
    rows = [{"prompt": f"Say {n}.", "answer": "no" if every and n % every == 0 else f"it is {n}"} for n in range(num)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(reward)
    table = {
        "recipe": "rlvr",
        "model": str(model),
        "precision": "exact",
        "data": str(tmp_path / "rows.jsonl"),
        "reward": str(tmp_path / "reward.py"),
        "rows": {"worked": "{answer}", "max_tokens": 6},
        "eval_tasks": 2,
        "few_shot": 0,
        "steps": 0,
        "warm_up": warm_up,
    }
    said = io.StringIO()
    posttrain.run(table, out=tmp_path / "run", progress=Progress(said))
    return said.getvalue()


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 1.5])
def test_any_temperature_may_sample_what_is_learnt(tiny_model: Path, tmp_path: Path, temperature: float) -> None:
    warm(tmp_path, tiny_model, {"steps": 0, "rejection_tasks": 8, "rejection_samples": 2, "temperature": temperature})
    run = RunDir.open(tmp_path / "run")
    rows = run.trajectories("warm_up")
    assert len(rows) == 8 and run.status == "finished"
    for row in rows:  # like rows that nobody sampled, but for who sampled them
        assert row.sampling is None and not any(turn.rollout_logprobs for turn in row.turns)
        assert row.turns[-1].policy_versions and row.turns[-1].weights_hash


@pytest.mark.parametrize(
    "warm_up", [{"steps": 1, "rejection_tasks": 0}, {"steps": 0, "rejection_tasks": 0}, {"steps": 10, "rows_per_step": 10}]
)
def test_nothing_to_ask_is_said(tiny_model: Path, tmp_path: Path, warm_up: dict[str, Any]) -> None:
    said = warm(tmp_path, tiny_model, warm_up)  # of 60 rows the last learns all
    assert "rejection sampling: no task is left to ask" in said
    assert RunDir.open(tmp_path / "run").status == "finished"


def test_worked_answers_that_are_judged_wrong_are_not_learnt(tiny_model: Path, tmp_path: Path) -> None:
    said = warm(tmp_path, tiny_model, {"steps": 10, "rows_per_step": 10, "rejection_steps": 0}, reward=RIGHT, every=3)
    run = RunDir.open(tmp_path / "run")
    learnt = run.trajectories("warm_up")
    assert learnt and all(t.final_text.startswith("it is") for t in learnt)
    (event,) = (e for e in run.events() if e["kind"] == "worked_answers_refused")
    assert 5 < event["num"] == len(event["rows"]) < 20 and {status for _, status in event["rows"]} == {"wrong"}
    assert not {name for name, _ in event["rows"]} & {t.id for t in learnt}
    whole = event["num"] + len(learnt)
    assert f"left out {event['num']} of {whole} worked answers that their own verifiers do not judge right" in said


def test_an_environment_without_a_training_row_has_no_oracle_row() -> None:
    held = [SimpleNamespace(held_out=True, prompt_hash=str(i)) for i in range(3)]
    environment: Any = SimpleNamespace(tasks=lambda: iter(held), reference=lambda task: "a worked answer")
    live: Any = SimpleNamespace(renderer=None)
    assert asyncio.run(oracle_rows(live, [environment], 4)) == []


def test_rows_that_repeat_are_counted_at_the_start(tiny_model: Path, tmp_path: Path) -> None:
    said = warm(tmp_path, tiny_model, {"steps": 0, "rejection_steps": 0})
    assert "dropped" not in said
    path = tmp_path / "rows.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[4] + "\n")
    again = io.StringIO()
    table = {"recipe": "evaluate", "model": str(tiny_model), "precision": "exact", "eval_tasks": 2}
    rows = {"name": "rows", "data": str(path), "reward": str(tmp_path / "reward.py")}
    posttrain.run({**table, "environments": [rows]}, out=tmp_path / "again", progress=Progress(again))
    assert f"rows/rows: rows dropped: 1, the first: {path}, line 61 (asks the same as line 5)" in again.getvalue()

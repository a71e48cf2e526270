"""The whole job on a model made on the spot: what it leaves behind, that it repeats, that a kill loses nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import posttrain
from posttrain.dashboard.curves import PANELS
from posttrain.dashboard.diagnose import diagnose
from posttrain.envs._base import Environment
from posttrain.errors import HostError, InvalidRun, UsageError
from posttrain.losses.cross_entropy import CrossEntropy
from posttrain.progress import Progress
from posttrain.recipes._clock import Clock
from posttrain.recipes._rehearsal import Rehearsal
from posttrain.recipes._sft_rows import training_tasks
from posttrain.recipes._warm_up import WarmUp
from posttrain.store.run_dir import RunDir
from posttrain.types import Trajectory

CLOCKS = ("time", "seconds", "second", "cpu", "memory")  # figures that depend on the machine


@pytest.fixture
def own(tmp_path: Path) -> dict[str, Any]:
    """Rows and a reward that even a random model earns parts of, so that groups are mixed and gradients are not zero."""
    rows, reward = tmp_path / "rows.jsonl", tmp_path / "reward.py"
    rows.write_text("".join(json.dumps({"prompt": f"Say a word that goes with {n}."}) + "\n" for n in range(200)))
    reward.write_text("def reward(trajectory):\n    return sum(map(ord, trajectory.text)) % 7 / 7\n")
    return {"data": str(rows), "reward": str(reward), "rows": {"max_tokens": 12}, "few_shot": 0}


def job(model: Path, **changes: Any) -> dict[str, Any]:
    """A small quickstart: two families train, one is held out whole."""
    return {
        "recipe": "rlvr",
        "model": str(model),
        "precision": "exact",
        "eval_tasks": 8,
        "few_shot": 1,
        "steps": 4,
        "tasks_per_step": 4,
        "group_size": 2,
        "checkpoint_every": 2,
        "warm_up": {"steps": 2, "rows_per_step": 4, "rejection_tasks": 4, "rejection_samples": 2, "rehearsed_rows": 3},
        "environments": [{"name": "math_computation/arithmetic"}, {"name": "logic/pick_extreme"}],
        "transfer": [{"name": "units_and_dates/unit_conversion"}],
        **changes,
    }


def start(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    return posttrain.run(table, out=path, progress=Progress(quiet=True))


def figures(path: Path) -> list[dict[str, Any]]:
    """Metrics that must repeat."""
    rows = RunDir.open(path).metrics()
    return [{k: v for k, v in row.items() if not any(c in k for c in CLOCKS)} for row in rows]


def tokens(path: Path) -> list[tuple[str, int, str, tuple[int, ...]]]:
    return [(stage, step, t.id, t.token_ids) for stage, step, t in RunDir.open(path).trajectory_rows()]


def weights(path: Path) -> bytes:
    return (path / "model" / "model.safetensors").read_bytes()


def test_a_run_leaves_everything_behind(tiny_model: Path, tmp_path: Path) -> None:
    result = start(tmp_path / "run", job(tiny_model))
    run = RunDir.open(tmp_path / "run")
    assert {"before", "few_shot", "after_sft", "after_rl", "difference", "interval", "minutes"} <= result.keys()
    assert run.status == "finished"
    assert [r["step"] for r in run.metrics("rlvr")] == [0, 1, 2, 3]
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    assert result["transfer"]["num_families"] == 1
    assert result["overall"]["num_families"] == 2
    assert all(row["peak_memory_bytes"] > 1e8 and row["cpu_seconds"] > 0 for row in run.metrics())
    listed = {(e["stage"], e["step"]): e["num"] for e in run.events() if e["kind"] == "dropped"}
    counted = {(r["stage"], r["step"]): r["rows_dropped"] for r in run.metrics() if r.get("rows_dropped")}
    assert listed == counted and counted, "guarantee A16: every dropped row is counted and can be listed"


def test_own_rows_with_an_own_reward_train_and_every_sample_can_be_looked_at(
    tiny_model: Path, tmp_path: Path, own: dict[str, Any]
) -> None:
    start(tmp_path / "run", job(tiny_model, **own, environments=[]))
    run = RunDir.open(tmp_path / "run")
    assert all(row["num_tokens_trained"] > 0 and row["grad_norm"] > 0 for row in run.metrics("rlvr"))
    attempt = next(t for s, _, t in run.trajectory_rows("rlvr") if t.advantage)
    answer = next(t for t in attempt.turns if t.role == "assistant")
    n = len(answer.token_ids)
    assert n == len(answer.rollout_logprobs) == len(answer.policy_logprobs) == len(answer.policy_versions)
    assert answer.weights_hash and attempt.verdict is not None and attempt.timings and attempt.sampling is not None
    worst = max(abs(a - b) for a, b in zip(answer.rollout_logprobs, answer.policy_logprobs, strict=True))
    assert worst <= 1e-4  # A1, through engine, store and policy
    written = set().union(*run.metrics("rlvr"))
    assert {p.metric for p in PANELS} - written == {"ref_kl", "rehearsal_loss"}, "the report draws what a run writes"
    assert len(diagnose(run)) == 9, "every figure of the diagnosis is there"


def test_train_and_held_out_prompts_are_disjoint(tiny_model: Path, tmp_path: Path) -> None:
    start(tmp_path / "run", job(tiny_model))
    run = RunDir.open(tmp_path / "run")
    held = {t.task.prompt_hash for t in run.trajectories("before")}
    trained = {t.task.prompt_hash for s in ("warm_up", "rlvr") for t in run.trajectories(s)}
    assert held and trained and not held & trained
    families = {t.task.environment for s in ("warm_up", "rlvr") for t in run.trajectories(s)}
    assert "units_and_dates/unit_conversion" not in families


def test_two_runs_with_one_seed_are_identical(tiny_model: Path, tmp_path: Path, own: dict[str, Any]) -> None:
    table = job(tiny_model, **own, environments=[{"name": "math_computation/arithmetic"}, {"name": "tools/inventory"}])
    for name in ("a", "b"):
        start(tmp_path / name, table)
    assert tokens(tmp_path / "a") == tokens(tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    start(tmp_path / "c", {**table, "seed": 1})
    assert tokens(tmp_path / "a") != tokens(tmp_path / "c")


def test_fast_repeats_too(tiny_model: Path, tmp_path: Path, own: dict[str, Any]) -> None:
    for name in ("a", "b"):
        start(tmp_path / name, job(tiny_model, **own, precision="fast", steps=2))
    assert tokens(tmp_path / "a") == tokens(tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


def test_a_finished_run_says_so(tiny_model: Path, tmp_path: Path) -> None:
    start(tmp_path / "run", job(tiny_model, steps=1))
    again = posttrain.resume(tmp_path / "run", progress=Progress(quiet=True))
    assert again["already_finished"] and "after_rl" in again


def test_a_broken_verifier_stops_the_run_before_it_starts(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posttrain.types import Verdict
    from posttrain.verifiers.number import Number

    async def wrong(self: Number, trajectory: Trajectory) -> Verdict:
        return Verdict(status="wrong", verifier="number")

    monkeypatch.setattr(Number, "judge", wrong)
    with pytest.raises(InvalidRun, match="math_computation/arithmetic"):
        start(tmp_path / "run", job(tiny_model))


def test_a_dropped_sync_ends_the_run_within_one_step(
    tiny_model: Path, tmp_path: Path, own: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee A6, through the whole recipe."""
    from posttrain.recipes import rlvr

    async def dropped(policy: Any, engine: Any) -> None:
        """Sends nothing."""

    monkeypatch.setattr(rlvr, "publish", dropped)
    with pytest.raises(InvalidRun, match="engine 'native'"):
        start(tmp_path / "run", job(tiny_model, **own, environments=[], warm_up={"steps": 0, "rejection_steps": 0}))
    assert len(RunDir.open(tmp_path / "run").metrics("rlvr")) == 1


def test_nothing_to_train_on_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trains on nothing"):
        start(tmp_path / "run", job(tiny_model, environments=[]))


def test_a_bad_row_leaves_no_directory_behind(tiny_model: Path, tmp_path: Path, own: dict[str, Any]) -> None:
    rows = Path(own["data"])
    good = rows.read_text()
    rows.write_text('{"question": "no prompt"}\n' + good)
    with pytest.raises(UsageError, match="line 1"):
        start(tmp_path / "run", job(tiny_model, **own, environments=[]))
    assert not (tmp_path / "run").exists()
    rows.write_text(good)
    start(tmp_path / "run", job(tiny_model, **own, environments=[], steps=1))


def test_a_mistyped_option_costs_nobody_a_file(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match=r"thesis\.txt.*new or empty one with --out"):
        posttrain.run("quickstart", "model=/no/such/model", out=tmp_path, progress=Progress(quiet=True))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_minutes_become_a_number_of_steps_once(tiny_model: Path, tmp_path: Path) -> None:
    start(tmp_path / "run", job(tiny_model, minutes=0.01, steps=50))
    run = RunDir.open(tmp_path / "run")
    assert run.info["rlvr_steps"] == 3 == len(run.metrics("rlvr"))


def test_minutes_that_are_left_at_the_end_become_more_steps(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = iter([4, 5, 5])  # after the third, the fourth and the fifth
    monkeypatch.setattr(Clock, "steps_that_fit", lambda self, minutes, most: next(fits))
    start(tmp_path / "run", job(tiny_model, minutes=1, steps=50, few_shot=0, eval_tasks=4, checkpoint_every=10))
    run = RunDir.open(tmp_path / "run")
    assert run.info["rlvr_steps"] == 5 == len(run.metrics("rlvr")) and next(fits, None) is None
    assert [c["checkpoint"] for c in run.commits() if c["stage"] == "rlvr"] == ["rlvr-00004"]


def test_a_budget_that_is_spent_is_said(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "run", {}) as run:
        assert Clock(run).told(12, 40) == "after 0.0 minutes: 40 RLVR steps fit into 12"
        run.note(seconds=900.0)
        assert Clock(run).told(12, 3) == "after 15.0 minutes the budget of 12 is spent: 3 RLVR steps, and the last evaluation"


@pytest.mark.parametrize(
    ("done", "seconds", "most", "fit"), [(3, 1.0, 99, 43), (10, 1.0, 99, 50), (10, 4.0, 99, 20), (10, 1.0, 15, 15)]
)
def test_a_budget_is_fitted_to_the_latest_steps(tmp_path: Path, done: int, seconds: float, most: int, fit: int) -> None:
    """51 s less 8 for the ending; the first three say what a step would take were 0.6 of its groups mixed."""
    with RunDir.create(tmp_path / "run", {}) as run:
        for step in range(done):
            run.write_metrics("rlvr", step, {"rollout_seconds": seconds / 2, "train_seconds": seconds / 2, "mixed_groups": 0.6})
        assert Clock(run).steps_that_fit(51 / 60, most) == fit


def command(path: Path, table: Path, *, resume: bool) -> list[str]:
    body = f"import json, posttrain; from posttrain.progress import Progress; q = Progress(quiet=True); p = {str(path)!r}; " + (
        "posttrain.resume(p, progress=q)" if resume else f"posttrain.run(json.load(open({str(table)!r})), out=p, progress=q)"
    )
    return [sys.executable, "-c", body]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_twenty_moments_and_resumed_equals_uninterrupted(tiny_model: Path, tmp_path: Path, own: dict[str, Any]) -> None:
    table = tmp_path / "job.json"
    table.write_text(json.dumps(job(tiny_model, **own)))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    subprocess.run(command(tmp_path / "whole", table, resume=False), check=True, env=env, timeout=300)
    length = time.monotonic() - began
    draw = random.Random(0)
    moments = [draw.uniform(0.05, 1.0) * length for _ in range(20)]

    def kill_and_resume(number: int) -> Path:
        path = tmp_path / f"killed-{number}"
        child = subprocess.Popen(command(path, table, resume=False), env=env)
        try:
            child.wait(moments[number])
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait(60)
        again = (path / "run.json").exists()
        subprocess.run(command(path, table, resume=again), check=True, env=env, timeout=300)
        return path

    with ThreadPoolExecutor(2) as threads:
        paths = list(threads.map(kill_and_resume, range(20)))
    whole = tmp_path / "whole"
    last = "rlvr-00003"
    for path in paths:
        assert weights(path) == weights(whole)
        assert tokens(path) == tokens(whole)  # nothing lost, nothing doubled
        assert figures(path) == figures(whole)
        old, new = (sorted((p / "checkpoints" / last).iterdir()) for p in (whole, path))
        assert [p.name for p in old] == [p.name for p in new]
        assert all(a.read_bytes() == b.read_bytes() for a, b in zip(old, new, strict=True))  # optimiser and pool too


@pytest.mark.parametrize("precision", ["auto", "exact"])
def test_a_device_that_is_none(tiny_model: Path, tmp_path: Path, precision: str) -> None:
    with pytest.raises(UsageError, match="There is no device 'gpu9'"):
        start(tmp_path / "run", job(tiny_model, device="gpu9", precision=precision))


def test_an_evaluation_that_nothing_judged_is_no_score_of_0(tiny_model: Path, tmp_path: Path, own: dict[str, Any]) -> None:
    Path(own["reward"]).write_text("import os\ndef reward(trajectory):\n    os._exit(3)\n")
    with pytest.raises(InvalidRun, match="none of the 2 attempts of 'before' could be judged"):
        start(tmp_path / "run", job(tiny_model, **own, environments=[], transfer=[], eval_tasks=2))
    assert not RunDir.open(tmp_path / "run").commits(), "the stage is done again once the reward is mended"


def test_a_disk_too_small_for_the_run_is_said_before_anything_is_sampled(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posttrain.recipes import _points

    with monkeypatch.context() as patch:
        patch.setattr(_points.shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000))
        with pytest.raises(
            HostError, match=r"0\.0 GB free, and this run takes up to 0\.0 GB \(3 checkpoints of 0\.0 GB at once, and the model\)"
        ):
            start(tmp_path / "run", job(tiny_model, few_shot=0, eval_tasks=4))
    assert not RunDir.open(tmp_path / "run").commits()
    posttrain.resume(tmp_path / "run", progress=Progress(quiet=True))
    run = RunDir.open(tmp_path / "run")
    least = min(sum(f.stat().st_size for f in c.iterdir()) for c in run.checkpoints.iterdir())
    assert run.status == "finished" and least > 1_000


@pytest.mark.parametrize("changes", [{}, {"steps": 0}, {"steps": 1}, {"warm_up": {"steps": 0, "rejection_steps": 0}}])
@pytest.mark.parametrize("reference", [False, True])
def test_the_room_asked_for_is_what_is_held_at_once(
    tiny_model: Path,
    tmp_path: Path,
    own: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    reference: bool,
) -> None:
    from posttrain.recipes import _points

    most = 0
    whole = RunDir.commit

    def watched(run: RunDir, *args: Any, **kw: Any) -> None:
        nonlocal most
        most = max(most, sum(f.stat().st_size for f in run.checkpoints.rglob("*") if f.is_file()))
        whole(run, *args, **kw)

    small = {"environments": [{"name": "logic/pick_extreme"}], "transfer": [], "eval_tasks": 4, "checkpoint_every": 1}
    table = job(tiny_model, **own, **small, train={"reference": reference}, **changes)
    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "commit", watched)
        start(tmp_path / "run", table)
    ended = [f for d in ("checkpoints", "model") for f in (tmp_path / "run" / d).rglob("*.safetensors")]
    most = max(most, sum(f.stat().st_size for f in ended))
    monkeypatch.setattr(_points.shutil, "disk_usage", lambda path: SimpleNamespace(free=0.9 * most))
    with pytest.raises(HostError, match="this run takes up to"):
        start(tmp_path / "refused", table)
    monkeypatch.setattr(_points.shutil, "disk_usage", lambda path: SimpleNamespace(free=1.1 * most))
    start(tmp_path / "again", table)


def test_names_that_collide_are_refused_before_anything_starts(tmp_path: Path, own: dict[str, Any]) -> None:
    sums = {"name": "math_computation/arithmetic"}
    for table, two in (
        ({"environments": [sums, {**sums, "level": [5]}]}, r"environments\[0\] and environments\[1\]"),
        ({"environments": [{"name": "logic/pick_extreme"}, sums], "transfer": [sums]}, r"environments\[1\] and transfer\[0\]"),
    ):
        with pytest.raises(UsageError, match=rf"{two} are both math_computation/arithmetic.*level = \[0, 5\]"):
            start(tmp_path / "run", job(Path("no/such/model"), **{"transfer": [], **table}))
        assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match=r"environments\[0\] and rows are both rows/rows"):
        entry = {"name": "rows", "data": own["data"], "reward": own["reward"]}
        start(tmp_path / "run", job(Path("no/such/model"), **own, environments=[entry]))
    with pytest.raises(UsageError, match=r"environments\[0\] and environments\[1\] are both math"):
        start(tmp_path / "run", {"recipe": "evaluate", "model": "no/such/model", "environments": [sums, sums]})


def test_as_many_attempts_are_made_at_once_as_the_engine_has_slots(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posttrain.recipes import _stages

    seen: list[int] = []
    for name in ("rollout", "evaluate"):
        whole = getattr(_stages, name)

        def watched(*args: Any, whole: Any = whole, concurrency: int = 0, **kw: Any) -> Any:
            seen.append(concurrency)
            return whole(*args, concurrency=concurrency, **kw)

        monkeypatch.setattr(_stages, name, watched)
    start(tmp_path / "run", job(tiny_model, steps=1, eval_tasks=4, engine={"max_slots": 144}))
    assert seen == [144] * 6  # four evaluations, rejection sampling, one step
    evaluated = {"recipe": "evaluate", "model": str(tiny_model), "precision": "exact", "eval_tasks": 4}
    start(tmp_path / "eval", {**evaluated, "environments": job(tiny_model)["transfer"], "engine": {"max_slots": 7}})
    assert seen[6:] == [7]


def test_a_batch_that_a_step_refused_is_kept(tiny_model: Path, tmp_path: Path, own: dict[str, Any]) -> None:
    table = job(tiny_model, **own, environments=[], transfer=[], eval_tasks=2, warm_up={"steps": 0, "rejection_steps": 0})
    with pytest.raises(InvalidRun, match=r"step 0 was refused.*the batch is kept in .*refused.step-000000\.jsonl"):
        start(tmp_path / "run", {**table, "train": {"max_logprob_gap": 1e-15}})
    assert len((tmp_path / "run" / "refused" / "step-000000.jsonl").read_text().splitlines()) == 8  # 4 tasks, groups of 2


def test_a_disk_that_fills_up_at_the_report_can_be_resumed(
    tiny_model: Path, tmp_path: Path, own: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from posttrain.recipes import _stages

    def full(run: RunDir, path: Path) -> None:
        raise HostError("the disk is full")

    small = job(
        tiny_model, **own, environments=[], transfer=[], eval_tasks=2, steps=1, warm_up={"steps": 0, "rejection_steps": 0}
    )
    with monkeypatch.context() as patch:
        patch.setattr(_stages, "write_report", full)
        with pytest.raises(HostError):
            start(tmp_path / "run", small)
    posttrain.resume(tmp_path / "run", progress=Progress(quiet=True))
    assert RunDir.open(tmp_path / "run").status == "finished"
    assert "finished" in (tmp_path / "run" / "report.html").read_text()


def test_warm_up_epochs_see_the_same_oracle_rows_again(tiny_model: Path, tmp_path: Path) -> None:
    warm_up = {"steps": 2, "epochs": 3, "rows_per_step": 4, "rejection_steps": 0}
    start(tmp_path / "run", job(tiny_model, steps=0, few_shot=0, eval_tasks=4, warm_up=warm_up))
    run = RunDir.open(tmp_path / "run")
    seen: dict[int, list[str]] = {}
    for _, step, row in run.trajectory_rows("warm_up"):
        seen.setdefault(step, []).append(row.id)
    assert sorted(seen) == list(range(6))
    assert seen[0] == seen[2] == seen[4] and seen[1] == seen[3] == seen[5]
    assert len({i for ids in seen.values() for i in ids}) == 8
    assert WarmUp(**warm_up).num_steps == 6  # what a preview predicts


def test_the_pool_does_not_begin_with_what_the_warm_up_knows_by_heart(tiny_model: Path, tmp_path: Path) -> None:
    start(tmp_path / "run", job(tiny_model, few_shot=0, eval_tasks=4))
    run = RunDir.open(tmp_path / "run")
    warm, rlvr = ({t.task.prompt_hash for _, _, t in run.trajectory_rows(stage)} for stage in ("warm_up", "rlvr"))
    assert len(warm) >= 8 and len(rlvr) >= 8 and not warm & rlvr


def test_rows_of_short_data_are_the_last_ones() -> None:
    tasks = [SimpleNamespace(held_out=i % 8 == 0, prompt_hash=str(i)) for i in range(20)]
    source = cast(Environment, SimpleNamespace(tasks=lambda: iter(tasks)))
    assert training_tasks(source, 3, skip=512) == tasks[17:]
    assert training_tasks(source, 3, skip=2) == tasks[3:6]
    assert len(training_tasks(source, 99, skip=0)) == 17


def test_rejection_sampling_asks_nothing_that_an_oracle_row_answered() -> None:
    tasks = [SimpleNamespace(held_out=False, prompt_hash=str(i % 25)) for i in range(30)]
    source = cast(Environment, SimpleNamespace(tasks=lambda: iter(tasks)))
    for skip in (10, 512):
        known = frozenset(t.prompt_hash for t in training_tasks(source, 4, skip=skip))
        rest = training_tasks(source, 5, skip=skip, known=known)
        assert len(rest) == 5 and not known & {t.prompt_hash for t in rest}


def test_rows_of_the_warm_up_are_rehearsed_in_turn(tiny_model: Path, tmp_path: Path) -> None:
    rows = [cast(Trajectory, i) for i in range(5)]
    assert [Rehearsal(rows, 3, CrossEntropy()).at(step) for step in range(3)] == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]
    assert len(Rehearsal(rows, 9, CrossEntropy()).at(0)) == 5
    start(tmp_path / "run", job(tiny_model, few_shot=0, eval_tasks=4, steps=2))
    run = RunDir.open(tmp_path / "run")
    learnt = WarmUp(rehearsed_rows=3).rehearsal(run, 1).rows
    assert sorted(t.id for t in learnt) == sorted({t.id for t in run.trajectories("warm_up")}) and len(learnt) >= 8
    first, second = run.metrics("rlvr")
    assert "rehearsal_loss" in {p.metric for p in PANELS}, "the report draws it"
    assert first["rehearsal_loss"] > 0 and first["rehearsal_grad_norm"] > 0
    assert second["policy_version"] == first["policy_version"] + 2  # RLVR's update and the rehearsal's


@pytest.mark.parametrize(
    ("minutes", "epochs", "tasks", "steps"),
    [(0, 4, 320, 8), (1, 1, 3, 1), (3, 1, 24, 1), (8, 2, 170, 5), (11, 3, 320, 8), (60, 4, 320, 8)],
)
def test_a_small_budget_warms_up_for_less(minutes: float, epochs: int, tasks: int, steps: int) -> None:
    within = WarmUp(epochs=4, rejection_tasks=320, rejection_steps=8).within(minutes)
    assert within == WarmUp(epochs=epochs, rejection_tasks=tasks, rejection_steps=steps)
    assert WarmUp(rejection_tasks=0, rejection_steps=0).within(minutes).rejection_steps == 0

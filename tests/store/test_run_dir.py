"""A run directory keeps what was reported through kills, full disks and second writers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posttrain.errors import EXIT_HOST, HostError, InvalidRun, UsageError
from posttrain.store.jsonl import Log
from posttrain.store.run_dir import RunDir
from posttrain.types import Message, Task, Trajectory, Turn, Verdict


def attempt(n: int, visit: int = 0) -> Trajectory:
    task = Task(id=f"a/b@1/L0/s{n}", environment="a/b", prompt=(Message(role="user", content=f"{n}?"),), answer=n)
    turns = (
        Turn(role="prompt", token_ids=(1, 2, n)),
        Turn(
            role="assistant",
            token_ids=(7, 8),
            rollout_logprobs=(-0.125, -1 / 3),
            policy_logprobs=(-0.126, -0.33),
            policy_versions=(3, 3),
            text="seven",
            stop_reason="stop",
        ),
    )
    verdict = Verdict(status="ok", reward=1.0, parts={"format": 1.0, "value": 1.0})
    return Trajectory(
        task=task, visit=visit, turns=turns, verdict=verdict, reward=1.0, advantage=0.5, timings={"sample": 0.25, "judge": 0.125}
    )


def test_a_sample_can_be_looked_at(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "r", {"seed": 3}) as run:
        run.write_trajectories("rl", 0, [attempt(0), attempt(1)])
        run.commit("rl", 0)
    read = RunDir.open(tmp_path / "r")
    got = read.trajectory("a/b@1/L0/s1#0.0")
    assert got == attempt(1)
    answer = got.turns[1]
    assert (
        answer.token_ids == (7, 8) and answer.rollout_logprobs == (-0.125, -1 / 3) and answer.policy_logprobs == (-0.126, -0.33)
    )
    assert answer.mask == (True, True) and answer.policy_versions == (3, 3)
    assert got.verdict is not None and got.verdict.parts == {"format": 1.0, "value": 1.0}
    assert got.advantage == 0.5 and got.timings == {"sample": 0.25, "judge": 0.125}
    with pytest.raises(UsageError, match="holds no trajectory"):
        read.trajectory("nope")


def test_run_json_says_what_ran(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "r", {"seed": 3, "train": {"lr": 1e-5}}) as run:
        info = run.info
        assert info["seed"] == 3 and info["status"] == "running"
        assert set(info["versions"]) >= {"posttrain", "torch", "transformers", "python"}
        assert info["cpu"] and info["cores"] >= 1
        run.set_status("finished")
    assert RunDir.open(tmp_path / "r").status == "finished"
    assert RunDir.open(tmp_path / "r").options["train"]["lr"] == 1e-5


def test_secrets_never_reach_the_disk(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "r", {"seed": 0, "engine": {"api_key": "sk-very-secret"}}):
        pass
    assert not [p for p in (tmp_path / "r").rglob("*") if p.is_file() and "sk-very-secret" in p.read_text()]


def test_an_uncommitted_step_is_marked_and_written_anew(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "r", {})
    for step in (0, 1):
        run.write_trajectories("rl", step, [attempt(step)])
        run.write_metrics("rl", step, {"reward": step, "loss": float("nan")})
        run.write_event(kind="step", stage="rl", step=step)
        if step == 0:
            run.commit("rl", 0, checkpoint="checkpoints/0")
    run.write_trajectories("other", 0, [attempt(5)])
    run.commit("other", 0)
    before = (tmp_path / "r/metrics.jsonl").read_bytes()
    run.close()

    with RunDir.open(tmp_path / "r", write=True) as run:
        assert run.last_commit("rl")["checkpoint"] == "checkpoints/0"  # type: ignore[index]
        assert any("stage rl: rows after step 0" in said for said in run.repairs)
        assert [m["step"] for m in run.metrics("rl")] == [0]
        run.write_trajectories("rl", 1, [attempt(1)])
        run.write_metrics("rl", 1, {"reward": 1})
        run.commit("rl", 1)
    read = RunDir.open(tmp_path / "r")
    assert [t.task.answer for t in read.trajectories("rl")] == [0, 1]
    assert [t.task.answer for t in read.trajectories()] == [0, 1, 5]
    assert [m["step"] for m in read.metrics("rl")] == [0, 1]
    assert str(read.metrics("rl")[0]["loss"]) == "nan"
    assert [e["step"] for e in read.events() if e["kind"] == "step"] == [0]
    assert (tmp_path / "r/metrics.jsonl").read_bytes().startswith(before), "rows are marked, never changed"
    with RunDir.open(tmp_path / "r", write=True) as run:
        assert run.repairs == []


def test_a_step_back_to_an_older_checkpoint(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "r", {}) as run:
        for step in range(4):
            run.write_metrics("rl", step, {"x": step})
            run.commit("rl", step, result={"end": step} if step == 3 else None)
        assert run.result("rl") == {"end": 3}
        run.rewind("rl", 1)
        assert run.result("rl") is None and run.last_commit("rl")["step"] == 1  # type: ignore[index]
        assert [m["x"] for m in run.metrics()] == [0, 1]
        run.write_metrics("rl", 2, {"x": 22})
        assert [m["x"] for m in run.metrics()] == [0, 1, 22]
        run.rewind("rl", None)
        assert run.metrics() == [] and run.last_commit("rl") is None


@pytest.mark.parametrize("name", ["metrics.jsonl", "commits.jsonl", "events.jsonl", "trajectories/rl.jsonl"])
def test_a_kill_at_any_byte_is_mended(tmp_path: Path, name: str) -> None:
    with RunDir.create(tmp_path / "whole", {}) as run:
        for step in (0, 1):
            run.write_trajectories("rl", step, [attempt(step)])
            run.write_metrics("rl", step, {"x": step})
            run.write_event(kind="step", stage="rl", step=step)
            run.commit("rl", step)
    whole = (tmp_path / "whole" / name).read_bytes()
    first = whole.index(b"\n") + 1
    for cut in [first, *range(first + 1, len(whole) - 1, 17), len(whole) - 2, len(whole) - 1]:
        shutil.copytree(tmp_path / "whole", tmp_path / str(cut))
        path = tmp_path / str(cut) / name
        path.write_bytes(whole[:cut])
        left = 2 if cut == len(whole) - 1 else 1  # only the line end is missing: the row is whole
        assert len(list(Log(path).rows())) == left, "readers pass over the fragment"
        with RunDir.open(tmp_path / str(cut), write=True) as run:
            assert (cut == first) or any(path.name in said for said in run.repairs)
            run.write_metrics("rl", 2, {"x": 2})
            assert run.metrics()[0]["x"] == 0 and run.metrics()[-1]["x"] == 2
            assert run.trajectories("rl")[0] == attempt(0)
            steps = [c["step"] for c in run.commits()]
            assert steps == ([0] if name == "commits.jsonl" and left == 1 else [0, 1])
        assert all(json.loads(x) for x in path.read_bytes().splitlines())


def test_damage_in_the_middle_is_named(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "r", {}) as run:
        run.write_metrics("rl", 0, {"x": 0})
        run.write_metrics("rl", 1, {"x": 1})
    path = tmp_path / "r/metrics.jsonl"
    path.write_bytes(b"\x00\x00" + path.read_bytes()[2:])
    with pytest.raises(InvalidRun, match=r"metrics\.jsonl, line 1"):
        RunDir.open(tmp_path / "r").metrics()


def test_a_full_disk_is_one_clear_message_and_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir.create(tmp_path / "r", {})
    run.write_metrics("rl", 0, {"x": 0})
    real = os.write
    state = {"left": 10}

    def full(fd: int, data: bytes) -> int:
        if not state["left"]:
            raise OSError(28, "No space left on device")
        n = real(fd, data[: state["left"]])
        state["left"] -= n
        return n

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(HostError, match=r"cannot write [\d,]+ bytes to .*rl\.jsonl: No space left") as caught:
        run.write_trajectories("rl", 1, [attempt(1)])
    assert caught.value.exit_code == EXIT_HOST
    monkeypatch.undo()
    assert (tmp_path / "r/trajectories/rl.jsonl").read_bytes() == b""
    run.write_trajectories("rl", 1, [attempt(1)])
    assert run.trajectories("rl") == [attempt(1)]
    run.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the host has no /dev/full")
def test_a_truly_full_device(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "r", {}) as run:
        (tmp_path / "r/metrics.jsonl").symlink_to("/dev/full")
        with pytest.raises(HostError, match=r"metrics\.jsonl"):
            run.write_metrics("rl", 0, {"x": 0})


def test_one_writer_at_a_time_and_a_dead_ones_lock_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import sys, time; from posttrain.store.run_dir import RunDir\n"
        "run = RunDir.create(sys.argv[1], {}); run.write_metrics('rl', 0, {'x': 0}); run.commit('rl', 0)\n"
        "run.write_metrics('rl', 1, {'x': 1})\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "r")], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    with pytest.raises(UsageError, match=f"written by another run .process {child.pid}"):
        RunDir.open(tmp_path / "r", write=True)
    assert [m["x"] for m in RunDir.open(tmp_path / "r").metrics()] == [0, 1], "reading needs no lock"
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=10)
    child.stdout.close()
    with RunDir.open(tmp_path / "r", write=True) as run:
        assert any(f"process {child.pid}, which died" in said for said in run.repairs)
        assert [m["x"] for m in run.metrics()] == [0]
        assert run.status == "running"


def test_an_error_leaves_the_run_interrupted(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RunDir.create(tmp_path / "r", {}):
        raise KeyboardInterrupt
    assert RunDir.open(tmp_path / "r").status == "interrupted"


def test_wrong_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        RunDir.open(tmp_path)
    with RunDir.create(tmp_path / "r", {}):
        pass
    with pytest.raises(UsageError, match="already holds a run"):
        RunDir.create(tmp_path / "r", {})
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        RunDir.create(tmp_path / "file", {})
    with pytest.raises(UsageError, match="write=True"):
        RunDir.open(tmp_path / "r").write_metrics("rl", 0, {})
    with pytest.raises(ValueError, match="stage"):
        RunDir.open(tmp_path / "r", write=True).write_metrics("../x", 0, {})


@pytest.mark.parametrize("name", ["thesis.txt", "options.toml", "model/model.safetensors", ".git/HEAD"])
def test_a_directory_that_holds_anything_else_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    mine = tmp_path / "mine" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    with pytest.raises(UsageError, match=f"mine holds '{name.split('/')[0]}', which is no part of a run"):
        RunDir.create(tmp_path / "mine", {})
    assert mine.read_text() == "years of work" and not (tmp_path / "mine" / "lock").exists()


def test_a_start_that_was_killed_can_be_made_again(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "whole", {"recipe": "rlvr"})
    run.close()
    for last in (["lock"], ["lock", "trajectories", "model"], ["lock", "trajectories", "checkpoints", "model", "options.toml"]):
        shutil.copytree(tmp_path / "whole", tmp_path / str(len(last)))
        for path in (tmp_path / str(len(last))).iterdir():
            if path.name not in last:
                path.rmdir() if path.is_dir() else path.unlink()
        RunDir.create(tmp_path / str(len(last)), {"recipe": "rlvr"}).close()


def test_what_is_discarded_is_what_was_made(tmp_path: Path) -> None:
    for name in ("new", "empty", "kept"):
        if name != "new":
            (tmp_path / name).mkdir()
        run = RunDir.create(tmp_path / name, {})
        if name == "kept":
            (tmp_path / name / "model" / "mine.txt").write_text("put here meanwhile")
        run.close()
        run.discard_unstarted()
    assert not (tmp_path / "new").exists() and list((tmp_path / "empty").iterdir()) == []
    assert [p.name for p in (tmp_path / "kept").rglob("*")] == ["model", "mine.txt"]


def test_results_and_notes(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "r", {}) as run:
        assert run.results() == {}
        run.write_results({"before": 0.1, "n": float("inf")})
        run.note(steps=12)
    read = RunDir.open(tmp_path / "r")
    assert read.results() == {"before": 0.1, "n": float("inf")} and read.info["steps"] == 12
    assert time.time() - read.info["started"] < 60


def test_options_edited_into_nonsense_are_named(tmp_path: Path) -> None:
    RunDir.create(tmp_path / "run", {"recipe": "rlvr"}).close()
    (tmp_path / "run" / "options.toml").write_text("steps = [\n")
    with pytest.raises(UsageError, match=r"options\.toml cannot be read"):
        _ = RunDir.open(tmp_path / "run").options
    (tmp_path / "run" / "options.toml").unlink()
    with pytest.raises(UsageError, match=r"options\.toml cannot be read"):
        _ = RunDir.open(tmp_path / "run").options


@pytest.mark.parametrize("text", ["{}", "[]", "{"])
def test_a_damaged_run_json_is_named(tmp_path: Path, text: str) -> None:
    RunDir.create(tmp_path / "run", {"recipe": "rlvr"}).close()
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(InvalidRun, match=r"run\.json"):
        _ = RunDir.open(tmp_path / "run").status


def test_a_place_that_cannot_be_written_is_not_called_full(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"Mend that, or choose another place with --out") as refused:
        RunDir.create(tmp_path / "file" / "run", {"recipe": "rlvr"})
    assert "free" not in str(refused.value)

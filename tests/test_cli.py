"""The command line: what each command prints, and every exit code of the table."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import posttrain
from posttrain import options
from posttrain.cli import boundary, doctor, main
from posttrain.errors import Interrupted, UsageError

RECIPE = '''
from __future__ import annotations
import asyncio, errno, os, sys
from dataclasses import dataclass
from typing import Any
from posttrain.errors import HostError, InfraError, InvalidRun, Interrupted

@dataclass(frozen=True, kw_only=True)
class Mine:
    """A recipe that ends as it is told."""
    how: str = "well"
    seed: int = 0
    minutes: float = 0.0
    api_key: str = ""

    def run(self, run: Any, progress: Any) -> dict[str, Any]:
        progress.stage("work", 2)
        if run.last_commit("work") is None:
            run.write_metrics("work", 0, {"reward": 0.5})
            run.commit("work", 0)
        progress.update(1, reward=0.5)
        if self.how == "sleep" and not (run.path / "again").exists():
            (run.path / "again").write_text("")
            asyncio.run(self.sleep())
        bad = {
            "invalid": InvalidRun("the weights were stale; start again"),
            "host": HostError("no sandbox here; use another host"),
            "disk": OSError(errno.ENOSPC, "No space left on device"),
            "memory": MemoryError(),
            "torch_memory": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            "ctrl_c": KeyboardInterrupt(),
            "bug": ZeroDivisionError("division by zero"),
        }
        if self.how in bad:
            raise bad[self.how]
        after = float("nan") if self.how == "nan" else 0.75
        result = {"before": 0.25, "after_rl": after, "seed": self.seed, "minutes": self.minutes}
        run.commit("work", 1, result=result)
        run.write_results(result)
        run.set_status("finished")
        return {**result, "peak_memory_bytes": 1.5e9, "table": "before 0.25 after 0.75", "report": str(run.path / "report.html")}

    async def sleep(self) -> None:
        async def engine() -> None:
            while True:
                sum(range(10_000))
                await asyncio.sleep(0)

        at_work = asyncio.create_task(engine())
        print("sleeping", flush=True)  # not before: Python drops a loop that a signal meets half made with a traceback
        await asyncio.sleep(60)
        at_work.cancel()
'''


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mine.py").write_text(RECIPE)
    (tmp_path / "job.toml").write_text('# my job\nrecipe = "mine.py"\nhow = "well"\n')
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "job.toml")


def call(*argv: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(argv)
    code = left.value.code
    assert isinstance(code, int)
    return code


def interruptible() -> None:
    """In the child: listens to Ctrl-C even where the tests run in the background, whose children ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def uninterruptible() -> None:
    """In the child: ignores Ctrl-C, as a shell's background jobs do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def reaped(process: subprocess.Popen[Any]) -> int:
    """How a process ended that should end soon; one that does not is killed, or leaving ``with`` would wait for ever."""
    try:
        return process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(60)


def test_run_prints_the_table_and_the_paths(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", job, "--out", "here", "--seed", "3") == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "before 0.25 after 0.75",
        "run:    here",
        "report: here/report.html",
        "time:   0.0 minutes, at most 1.5 GB of memory",
    ]
    assert "[work] 2 steps" in said.err
    assert options.load("here")["seed"] == 3


def test_run_json_is_one_document(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", job, "--json", "--minutes", "2", "how=nan") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["before"], result["after_rl"], result["minutes"]) == (0.25, None, 2.0)
    assert Path(result["run"]).parent == Path("runs") and Path(result["run"]).name.startswith("job-")


def test_print_is_the_file_itself_or_the_resolved_table(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", job, "--print") == 0
    assert capsys.readouterr().out == Path(job).read_text()
    assert call("run", job, "--print", "how=other", "--seed", "9") == 0
    printed = capsys.readouterr().out
    assert 'how = "other"' in printed and "seed = 9" in printed
    assert call("run", job, "--print", "--json", "how=other", "--seed", "9") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["how"] == "other" and told["seed"] == 9
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("invalid", 4, "posttrain: the weights were stale; start again"),
        ("host", 5, "no sandbox here"),
        ("disk", 5, "the disk is full"),
        ("memory", 5, "memory ran out"),
        ("torch_memory", 5, "memory ran out (DefaultCPUAllocator"),
        ("ctrl_c", 130, "all is saved up to stage work, step 0. Go on with: posttrain resume out"),
        ("bug", 2, "in run: ZeroDivisionError: "),
    ],
)
def test_exit_codes_of_a_run(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str, code: int, says: str
) -> None:
    assert call("run", job, f"how={how}", "--out", "out", "--json") == code
    said = capsys.readouterr()
    assert says in said.err
    assert said.out == ""
    crashes = list(tmp_path.glob("posttrain-crash-*.txt"))
    assert bool(crashes) == (how == "bug")


def test_an_error_in_a_file_of_the_users_own_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A family that calls us wrongly: not a bug of ours, and the line to mend is what its author needs."""
    text = (Path(__file__).parents[1] / "examples" / "sort_words.py").read_text()
    assert text.count("return Response.of(") == 1
    (tmp_path / "mine.py").write_text(text.replace("return Response.of(", "return Response(text="))
    monkeypatch.chdir(tmp_path)
    assert call("env", "show", "mine.py") == 2
    said = capsys.readouterr().err
    line = 1 + next(i for i, row in enumerate((tmp_path / "mine.py").read_text().splitlines()) if "Response(text=" in row)
    assert f"mine.py, line {line}, in oracle: TypeError" in said and "mend the file" in said
    assert "a bug of ours" not in said


def test_what_is_no_error_of_anyone_else_is_a_bug_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("posttrain.evals.power.sampling_variance", lambda *_, **__: 1 / 0, raising=True)
    assert call("eval", "power") == 70
    assert "a bug of ours: ZeroDivisionError" in capsys.readouterr().err
    assert list(tmp_path.glob("posttrain-crash-*.txt"))


def test_a_crash_file_holds_the_traceback_and_no_secret(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", job, "how=bug", "api_key=hunter2", "--out", "out") == 2
    (crash,) = tmp_path.glob("posttrain-crash-*.txt")
    assert str(crash) in capsys.readouterr().err
    text = crash.read_text()
    assert "ZeroDivisionError" in text and "mine.py" in text and "how=bug" in text
    assert "hunter2" not in text
    assert "hunter2" not in (tmp_path / "out" / "options.toml").read_text()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["runn"], "Did you mean 'run'"),
        (["run"], "Missing argument 'RECIPE'"),
        (["run", "nothing.toml"], "there is no file"),
        (["run", "JOB", "hwo=x"], "'hwo' is not an option of mine:Mine. Did you mean 'how'"),
        (["run", "JOB", "seed=x"], "seed is 'x' (str), but must be a whole number"),
        (["run", "JOB", "out=here"], "give it as --out"),
        (["run", "JOB", "how"], "not of the form key=value"),
        (["run", "JOB", "--minutes", "soon"], "Invalid value for '--minutes'"),
        (["run", "JOB", "--minuets", "3"], "No such option"),
        (["eval", "run", "org/name", "--minutes", "3"], "No such option"),  # an evaluation has no budget of time
        (["resume", "nowhere"], "nowhere holds no run"),
        (["list", "verifier"], "Did you mean 'verifiers'"),
        (["list", "verifiers", "exakt"], "Did you mean 'exact'"),
        (["check", "verifiers", "exakt"], "Did you mean 'exact'"),
        (["check", "verifier", "exact"], "Did you mean 'verifiers'"),
        (["check", "verifiers", "exact", "fuzzy=1"], "'fuzzy' is not an option"),
        (["env", "show", "nothing/here"], "there is no plug-in 'nothing/here'"),
        (["env", "show", "math_computation/arithmetic", "--level", "12"], "has no level 12; its levels are 0 to 9"),
        (["eval", "power", "--items", "1"], "at least 2 items"),
        (["eval", "compare", "nowhere", "here"], "nowhere"),
        (["report", "nowhere"], "nowhere holds no run"),
        (["diagnose", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_2_with_one_clear_message(job: str, capsys: pytest.CaptureFixture[str], argv: list[str], says: str) -> None:
    assert call(*[job if a == "JOB" else a for a in argv]) == 2
    said = capsys.readouterr()
    assert says in said.err and "Traceback" not in said.err
    assert len([x for x in said.err.splitlines() if x.startswith("posttrain: ")]) == 1
    assert not Path("runs").exists(), "nothing was started"


def test_a_run_that_is_there_is_not_overwritten(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", job, "--out", "out") == 0
    assert call("run", job, "--out", "out") == 2
    assert "posttrain resume out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "before"),
    [(signal.SIGINT, interruptible), (signal.SIGTERM, interruptible), (signal.SIGTERM, uninterruptible)],
    ids=["ctrl-c", "kill", "kill in the background"],
)
def test_ctrl_c_from_outside_then_resume(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals, before: Callable[[], None]
) -> None:
    command = [sys.executable, "-m", "posttrain", "run", job, "how=sleep", "--out", "out"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, preexec_fn=before
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == "sleeping\n"
        running.send_signal(number)
        assert reaped(running) == 130
        said = running.stderr.read()
        assert "posttrain resume out" in said and "Traceback" not in said
    assert call("resume", "out") == 0
    assert "before 0.25" in capsys.readouterr().out
    assert call("resume", "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["already_finished"] is True
    assert call("resume", "out") == 0
    assert "had finished before" in capsys.readouterr().out


def test_a_reader_that_leaves_early_is_no_error(job: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m posttrain list envs | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0" and "Traceback" not in done.stderr


class Room:
    """A room whose ``main`` returns what it is told, in the place of one that needs a model."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result
        self.calls: list[tuple[Any, ...]] = []

    def main(self, *args: Any, **kw: Any) -> dict[str, Any]:
        self.calls.append((args, kw))
        return self.result


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_a_result_carries_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    room = Room({"verdict": "SO", "exit_code": code, "text": "SO: because"})
    monkeypatch.setattr("posttrain.evals.compare.main", room.main)
    assert call("eval", "compare", "a", "b", "--margin", "0.05") == code
    assert capsys.readouterr().out == "SO: because\n"
    assert call("eval", "compare", "a", "b", "--json") == code
    assert json.loads(capsys.readouterr().out) == {"verdict": "SO", "exit_code": code}
    assert room.calls[0] == (("a", "b"), {"margin": 0.05, "as_json": False, "seed": 0})


@pytest.mark.parametrize(
    ("argv", "module", "args", "kw"),
    [
        (["preview", "quickstart", "seed=3"], "posttrain.recipes.preview", ("quickstart",), {"overrides": ("seed=3",)}),
        (["export", "RUN", "--out", "there"], "posttrain.recipes.export", ("RUN",), {"out": "there"}),
        (["export", "RUN"], "posttrain.recipes.export", ("RUN",), {"out": None}),
        (["diagnose", "RUN"], "posttrain.dashboard.diagnose", ("RUN",), {}),
    ],
)
def test_commands_call_their_room(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    module: str,
    args: tuple[str, ...],
    kw: dict[str, Any],
) -> None:
    room = Room({"figure": 1, "text": "said"})
    monkeypatch.setitem(sys.modules, module, room)
    assert call(*argv) == 0
    assert capsys.readouterr().out == "said\n"
    assert call(*argv, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"figure": 1}
    for got_args, got_kw in room.calls:
        assert got_args == args
        assert {k: v for k, v in got_kw.items() if k not in ("progress", "as_json")} == kw


def test_report_says_where_it_is(job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", job, "--out", "out") == 0
    capsys.readouterr()
    assert call("report", "out") == 0
    assert capsys.readouterr().out == "report: out/report.html\n"
    assert "<html" in Path("out/report.html").read_text()


def test_quickstart_is_a_shipped_recipe(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quickstart.toml").write_text('recipe = "mine.py"\n')
    monkeypatch.setattr(options, "RECIPES", tmp_path)
    assert call("quickstart", "--minutes", "3", "--seed", "1", "--out", "quick") == 0
    assert {k: options.load("quick")[k] for k in ("minutes", "seed")} == {"minutes": 3.0, "seed": 1}


def test_eval_run_takes_a_model_or_a_run(job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []

    def run(*args: Any, **kw: Any) -> dict[str, Any]:
        asked.append(args)
        return {"run": "r"}

    assert call("run", job, "--out", "out") == 0
    monkeypatch.setattr(posttrain, "run", run)
    assert call("eval", "run", "org/name", "eval_tasks=4") == 0
    assert call("eval", "run", "out", "--recipe", job) == 0
    assert asked == [
        ("evaluate", "model=org/name", "eval_tasks=4"),
        (job, f"model={Path('out/model').absolute()}"),
    ]


CHAT = """
import asyncio, sys, types

def talk(model, *, lines, out, temperature, max_tokens):
    async def ask():
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            out.write(f"{model} {temperature} {max_tokens} heard {line}")
            out.flush()
    asyncio.run(ask())

sys.modules["posttrain.recipes.chat"] = types.SimpleNamespace(main=talk)
from posttrain.cli import main
main(["chat", "RUN", "--temperature", "0", "--max-tokens", "9"])
"""


def test_chat_reads_lines(job: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHAT], input="one\ntwo\n", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "RUN 0.0 9 heard one\nRUN 0.0 9 heard two\n")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_chat_in_a_terminal_leaves_on_ctrl_c() -> None:
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", CHAT], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=interruptible
    ) as talking:
        os.close(theirs)
        assert talking.stdout is not None and talking.stderr is not None
        assert talking.stderr.read(2) == b"> "
        os.write(ours, b"hello\n")
        assert b"heard hello" in talking.stdout.readline()
        assert talking.stderr.read(2) == b"> "
        talking.send_signal(signal.SIGINT)
        ended = reaped(talking)
    os.close(ours)
    assert ended == 130


def test_eval_power_is_quick_and_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", "power", "--items", "100", "--margin", "0.1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["items"] == 100


def test_check_fails_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("check", "verifiers", "exact") == 0
    assert "passed" in capsys.readouterr().out
    (tmp_path / "yes.py").write_text(
        "from dataclasses import dataclass\nfrom posttrain.types import Verdict\n\n"
        "@dataclass(frozen=True)\nclass Yes:\n    async def judge(self, trajectory):\n        raise RuntimeError('broken')\n"
    )
    assert call("check", "verifiers", str(tmp_path / "yes.py"), "--json") == 1
    result = json.loads(capsys.readouterr().out)
    assert result["passed"] is False and result["failures"]


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list") == 0
    assert "verifiers" in capsys.readouterr().out
    assert call("list", "verifiers", "--json") == 0
    assert "exact" in json.loads(capsys.readouterr().out)["names"]
    assert call("list", "verifiers", "exact", "--json") == 0
    assert "partial" in [o["name"] for o in json.loads(capsys.readouterr().out)["options"]]


def test_env_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("env", "show", "math_computation/arithmetic", "--level", "2", "--seed", "5") == 0
    text = capsys.readouterr().out
    assert "L2/s5" in text and "--- oracle" in text and "--- decoy" in text
    assert call("env", "show", "math_computation/arithmetic", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (
        shown["task"]["level"] == 0 if "level" in shown["task"] else shown["task"]["id"].startswith("math_computation/arithmetic")
    )
    assert len(shown["decoys"]) >= 3


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("doctor", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["posttrain"] == posttrain.__version__ and found["torch"] and found["cores"] >= 1
    assert "smollm2-135m-instruct" in found["models"]
    assert {"parquet", "notebook"} <= set(found["extras"])
    assert call("doctor") == 0
    assert "free disk gib" in capsys.readouterr().out


def test_doctor_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "memory_gib", lambda: 2.0)
    monkeypatch.setattr(doctor, "free_gib", lambda path: 0.5)
    monkeypatch.setattr(doctor, "bf16_flags", list)
    advice = " ".join(doctor.examine()["advice"])
    assert "memory" in advice and "POSTTRAIN_CACHE" in advice and "bf16" in advice
    given = re.search(r"train\.tokens_per_batch=(\d+)", advice)
    assert given and int(given[1]) < options.load("quickstart")["train"]["tokens_per_batch"], "less than it would be"


def test_doctor_tells_a_cached_model_from_a_file_and_from_nothing(tmp_path: Path) -> None:
    assert doctor.readiness("m", tmp_path, False) == "absent"
    assert doctor.readiness("m", tmp_path, True) == "on disk"
    (tmp_path / "models" / "m-1").mkdir(parents=True)
    (tmp_path / "models" / "m-1" / "model.safetensors").write_text("")
    assert doctor.readiness("m", tmp_path, True) == "cached"


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out == f"posttrain {posttrain.__version__}\n"
    assert call("--help") == 0
    listed = capsys.readouterr().out
    for name in (
        "quickstart",
        "preview",
        "run",
        "resume",
        "export",
        "chat",
        "eval",
        "list",
        "check",
        "report",
        "diagnose",
        "doctor",
        "env",
    ):
        assert f"\n  {name} " in listed


def test_messages_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    boundary.say("a model said \x1b[2J")
    assert capsys.readouterr().err == "posttrain: a model said \N{REPLACEMENT CHARACTER}[2J\n"


def test_python_api(job: str) -> None:
    result = posttrain.run(job, "how=well", seed=4, out="api")
    assert (result["before"], result["seed"], result["run"]) == (0.25, 4, "api")
    assert posttrain.resume("api")["already_finished"]
    with pytest.raises(UsageError, match="Did you mean 'seed'"):
        posttrain.run(job, sead=4)
    with pytest.raises(Interrupted, match="posttrain resume stopped"):
        posttrain.run(job, how="ctrl_c", out="stopped")
    with pytest.raises(OSError) as caught:
        posttrain.run(job, how="disk", out="full")
    assert caught.value.errno == errno.ENOSPC


def test_python_api_inside_an_event_loop(job: str) -> None:
    """As in a notebook, where a loop runs already and recipes start their own."""
    import asyncio

    Path("mine.py").write_text(RECIPE.replace('progress.stage("work", 2)', "import asyncio; asyncio.run(asyncio.sleep(0))"))

    async def cell() -> dict[str, Any]:
        return posttrain.run(job, out="notebook")

    assert asyncio.run(cell())["before"] == 0.25
    Path("mine.py").write_text(RECIPE)
    with pytest.raises(UsageError):
        asyncio.run(asyncio.wait_for(_bad(job), 10))


async def _bad(job: str) -> Any:
    return posttrain.run(job, nonsense=1)


def test_a_run_with_secrets_does_not_resume_with_blanks(job: str) -> None:
    with pytest.raises(Interrupted):
        posttrain.run(job, how="ctrl_c", api_key="hunter2", out="secret")
    with pytest.raises(UsageError, match="secrets blanked"):
        posttrain.resume("secret")


def test_options_without_a_recipe_do_not_resume(job: str) -> None:
    with pytest.raises(Interrupted):
        posttrain.run(job, how="ctrl_c", out="edited")
    Path("edited/options.toml").write_text('how = "well"\n')
    with pytest.raises(UsageError, match=r"options\.toml names no recipe"):
        posttrain.resume("edited")


def test_two_runs_within_a_second_get_directories_of_their_own(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    assert [posttrain.run(job)["run"] for _ in range(3)] == ["runs/job-now", "runs/job-now-2", "runs/job-now-3"]


def test_a_full_disk_for_the_crash_file_still_tells_the_story(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: Any, **kw: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", refuse)
    assert "above" in str(boundary.write_crash(ValueError("x"), ["run"]))
    assert "ValueError: x" in capsys.readouterr().err

"""A user's reward function: what it sees, and one clear message for everything it can do wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from posttrain.errors import DeadlineExceeded, UsageError, WorkerLost
from posttrain.types import Message, Task, ToolCall, Trajectory, Turn, Verdict
from posttrain.verifiers.function import Function

TASK = Task(
    id="rows/mine/ab",
    environment="rows/mine",
    prompt=(Message(role="user", content="2+2?"),),
    answer="4",
    private={"row": {"prompt": "2+2?", "answer": "4", "hint": "even"}},
    metadata={"place": "mine.jsonl, line 3"},
)
TRAJECTORY = Trajectory(
    task=TASK,
    turns=(
        Turn(role="prompt", token_ids=(1,)),
        Turn(
            role="assistant",
            token_ids=(2, 3),
            text="it is 4",
            tool_calls=(ToolCall(name="f", arguments={"a": 1}),),
            stop_reason="stop",
        ),
    ),
)


def judge(tmp_path: Path, body: str, trajectory: Trajectory = TRAJECTORY, **options: object) -> Verdict:
    path = tmp_path / "reward.py"
    path.write_text(body)
    return asyncio.run(Function(path=path, **options).judge(trajectory))  # type: ignore[arg-type]


def test_what_it_sees(tmp_path: Path) -> None:
    verdict = judge(
        tmp_path,
        "def reward(trajectory):\n"
        "    assert trajectory.text == trajectory.final_text == 'it is 4'\n"
        "    assert trajectory.answer == trajectory.task.answer == '4' and trajectory.row['hint'] == 'even'\n"
        "    assert trajectory.task.prompt[0].content == '2+2?' and trajectory.outcome == 'finished'\n"
        "    assert [t.role for t in trajectory.turns] == ['prompt', 'assistant']\n"
        "    assert trajectory.turns[1].tool_calls[0].arguments == {'a': 1} and trajectory.num_sampled == 2\n"
        "    try:\n"
        "        trajectory.reward = 1\n"
        "    except AttributeError:\n"
        "        return 0.25\n",
    )
    assert verdict == Verdict(status="wrong", reward=0.25, parts={"reward": 0.25}, verifier="function reward.py")


def test_any_finite_number_counts_and_passing_says_what_passes(tmp_path: Path) -> None:
    assert judge(tmp_path, "def reward(t): return True").status == "ok"
    low = judge(tmp_path, "import numpy\ndef reward(t): return numpy.float32(-7.5)", passing=-8.0)
    assert (low.reward, low.status) == (-7.5, "ok")
    assert judge(tmp_path, "def score(t): return 1", function="score").parts == {"score": 1.0}
    (tmp_path / "beside.py").write_text("HALF = 0.5")
    assert judge(tmp_path, "from beside import HALF\ndef reward(t): return HALF").reward == 0.5


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "def reward(t):\n    x = 1\n    return x / 0\n",
            "reward.py, line 3: reward() raised ZeroDivisionError: division by zero",
        ),
        ("def reward(t): return float('nan')", "returned nan, but a reward is a finite number"),
        ("def reward(t): return float('inf')", "returned inf"),
        ("def reward(t): pass", "returned 'None' (NoneType), not a number"),
        ("def reward(t): return '1'", "returned '1' (str), not a number"),
        ("def reward(): return 1", "reward() raised TypeError"),
        ("def reward(t): return 10**400", "returned a whole number beyond any float"),
        ("import sys\ndef reward(t): sys.exit(3)", "line 2: reward() raised SystemExit: 3"),
        ("def reward(t): raise KeyboardInterrupt", "reward() raised KeyboardInterrupt"),
        ("import nothing_of_that_name\ndef reward(t): return 1", "line 1: ModuleNotFoundError"),
    ],
)
def test_what_fails_names_file_line_and_row(tmp_path: Path, body: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        judge(tmp_path, body)
    assert str(tmp_path / "reward.py") in str(caught.value) and says in str(caught.value)
    assert "the answer to rows/mine/ab (mine.jsonl, line 3)" in str(caught.value)


def test_a_hang_and_a_death_are_our_failures_never_a_reward(tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded, match=r"did not finish within 0\.3 s"):
        judge(tmp_path, "def reward(t):\n    while True: pass", deadline=0.3)
    with pytest.raises(WorkerLost):
        judge(tmp_path, "import os\ndef reward(t): os._exit(3)")
    assert judge(tmp_path, "def reward(t): return 1").reward == 1.0


def test_a_file_that_cannot_work_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        Function(path=tmp_path / "reward.py")
    (tmp_path / "reward.py").write_text("def reward(t) return 1")
    with pytest.raises(UsageError, match=r"reward\.py, line 1 is not Python"):
        Function(path=tmp_path / "reward.py")
    (tmp_path / "reward.py").write_text("def rewards(t): return 1")
    with pytest.raises(UsageError, match=r"no function 'reward'\. Did you mean 'rewards'\?"):
        Function(path=tmp_path / "reward.py")


def test_an_absurdly_long_answer_never_reaches_it(tmp_path: Path) -> None:
    long = Trajectory(task=TASK, turns=(Turn(role="assistant", token_ids=(1,), text="x" * 10_000_000),))
    assert judge(tmp_path, "def reward(t): return 1", long).status == "malformed"

"""The index answers what the files hold, follows them, and can be thrown away."""

from __future__ import annotations

from pathlib import Path

import pytest

from posttrain.errors import UsageError
from posttrain.store.index import Index
from posttrain.store.run_dir import RunDir
from posttrain.types import Message, Task, Trajectory, Turn, Verdict


def attempt(n: int) -> Trajectory:
    task = Task(
        id=f"a/b/{n}", environment="a/b" if n % 2 else "c/d", level=n % 3, prompt=(Message(role="user", content=f"{n} ü"),)
    )
    turns = (Turn(role="prompt", token_ids=(1,)), Turn(role="assistant", token_ids=(7,) * (n + 1), text="x"))
    if n == 5:
        return Trajectory(task=task, turns=turns, outcome="infra_error", retries=2)
    verdict = Verdict(status="ok" if n % 3 == 0 else "wrong", reward=n / 10)
    return Trajectory(task=task, turns=turns, verdict=verdict, reward=n / 10)


def ids(index: Index, **query: object) -> list[str]:
    return [e.task for e in index.select(**query)]  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir.create(tmp_path / "r", {})
    run.write_trajectories("rl", 0, [attempt(n) for n in range(6)])
    run.commit("rl", 0)
    return run


def test_it_finds_and_loads(run: RunDir) -> None:
    with Index(run.path) as index:
        assert ids(index, environment="a/b") == ["a/b/1", "a/b/3", "a/b/5"]
        assert ids(index, status="ok", order="reward", descending=True) == ["a/b/3", "a/b/0"]
        assert ids(index, min_reward=0.3) == ["a/b/3", "a/b/4"]
        assert ids(index, order="tokens", descending=True, limit=2) == ["a/b/5", "a/b/4"]
        assert [e.retries for e in index.select(outcome="infra_error")] == [2]
        assert list(index.trajectories()) == [attempt(n) for n in range(6)]
        with pytest.raises(UsageError, match="Did you mean 'status'"):
            index.select(statis="ok")
    run.close()


def test_it_follows_what_is_appended_and_rewound(run: RunDir) -> None:
    with Index(run.path) as index:
        assert index.refresh() == 0
        run.write_trajectories("rl", 1, [attempt(6)])
        run.write_trajectories("eval", 0, [attempt(7)])
        assert index.refresh() == 2 and len(index.select(stage="rl")) == 7
        run.rewind("rl", 0)
        index.refresh()
        assert ids(index, stage="rl") == [f"a/b/{n}" for n in range(6)]
        run.write_trajectories("rl", 1, [attempt(8)])
        with run.path.joinpath("trajectories/rl.jsonl").open("ab") as file:
            file.write(b'{"stage": "rl", "st')  # a writer under way
        assert index.refresh() == 1 and ids(index, stage="rl")[-1] == "a/b/8"
    run.close()


def test_a_damaged_or_deleted_index_is_made_again(run: RunDir) -> None:
    with Index(run.path) as index:
        whole = index.select()
    for damage in (b"not a database at all" * 100, b""):
        (run.path / "index.sqlite").write_bytes(damage)
        with Index(run.path) as index:
            assert index.select() == whole
    (run.path / "index.sqlite").unlink()
    with Index(run.path) as index:
        assert index.select() == whole
    run.close()


def test_a_file_that_was_replaced_is_read_anew(run: RunDir) -> None:
    with Index(run.path) as index:
        path = run.path / "trajectories/rl.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(reversed(lines)))
        assert index.refresh() == 6 and ids(index)[0] == "a/b/5"
    run.close()


def test_no_run_no_index(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        Index(tmp_path)

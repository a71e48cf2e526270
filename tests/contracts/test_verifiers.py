"""Every listed verifier passes its gate, and the gate catches broken ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from posttrain import plugins
from posttrain.contracts.verifiers import check
from posttrain.types import Trajectory, Verdict

REWARD = """
def reward(trajectory):
    return float(trajectory.answer is not None and trajectory.text == f"Answer: {trajectory.answer}")
"""


@pytest.mark.parametrize("name", plugins.names("verifiers"))
def test_verifier_passes_the_gate(name: str, tmp_path: Path) -> None:
    options = {}
    if "path" in plugins.field_types(plugins.find("verifiers", name)):  # a verifier made of a user's file
        (tmp_path / "reward.py").write_text(REWARD)
        options["path"] = str(tmp_path / "reward.py")
    assert check(plugins.build("verifiers", name, **options)) == []


@dataclass(frozen=True)
class Judging:
    """A verifier made of a function."""

    says: Callable[[Trajectory], Verdict]

    async def judge(self, trajectory: Trajectory) -> Verdict:
        return self.says(trajectory)


def _ok(trajectory: Trajectory) -> Verdict:
    return Verdict(status="ok", reward=1.0)


def _raises(trajectory: Trajectory) -> Verdict:
    return Verdict(status="wrong", reward=float(len(trajectory.final_text.split()[0])))


def _leaks(trajectory: Trajectory) -> Verdict:
    return Verdict(status="wrong", feedback=f"not {trajectory.task.answer}")


def _threads(trajectory: Trajectory) -> Verdict:
    main = threading.current_thread() is threading.main_thread()
    return Verdict(status="wrong", reward=0.5 if main and trajectory.final_text.strip() else 0.0)


@pytest.mark.parametrize(
    ("says", "fault"),
    [(_ok, "no answer"), (_ok, "empty answer"), (_raises, "IndexError"), (_leaks, "gives the answer away"), (_threads, "thread")],
)
def test_a_broken_verifier_is_caught(says: Callable[[Trajectory], Verdict], fault: str) -> None:
    assert any(fault in said for said in check(Judging(says)))


def test_what_cannot_judge_is_no_verifier() -> None:
    assert check(object()) == ["it has no async method judge(trajectory) -> Verdict"]

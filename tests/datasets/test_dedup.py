"""The first of equal rows is kept."""

from __future__ import annotations

from posttrain.datasets.dedup import drop_duplicates, fingerprint
from posttrain.types import Message, Task, Trajectory, Turn


def row(prompt: str, answer: str) -> Trajectory:
    task = Task(id=prompt, environment="data/x", prompt=(Message(role="user", content=prompt),))
    return Trajectory(task=task, turns=(Turn(role="prompt", token_ids=(1,)), Turn(role="assistant", token_ids=(2,), text=answer)))


def test_the_first_is_kept() -> None:
    rows = [row("What is  2+2?", "4"), row("what is 2+2?", "4 "), row("what is 2+2?", "5"), row("other", "4")]
    kept, dropped = drop_duplicates(rows)
    assert kept == [rows[0], rows[2], rows[3]] and dropped == [rows[1]]


def test_where_texts_end_counts() -> None:
    assert fingerprint(["ab", "c"]) != fingerprint(["a", "bc"])
    assert fingerprint(["ﬁn\u00e9"]) == fingerprint(["fine\u0301"])
    fingerprint(["\ud800"])

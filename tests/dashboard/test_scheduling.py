"""The event log names the slowest family, the item that stuck and the commonest status."""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.dashboard.scheduling import lines, scheduling


def attempt(name: str, family: str, status: str, judge: float, **more: Any) -> dict[str, Any]:
    timings = {"queue": 99.0, "attempt": 1.0, "sample": 0.9, "judge": judge, "admission": judge * 0.9}
    return {"kind": "attempt", "attempt": name, "environment": family, "status": status, "timings": timings, **more}


EVENTS = [
    {"kind": "failure", "attempt": "a/x/1#0.0", "failure": "InfraError", "what": "a crash"},
    {"kind": "failure", "attempt": "b/y/1#0.0", "failure": "DeadlineExceeded", "what": "turn 0 of b/y/1#0.0 did not finish"},
    attempt("a/x/1#0.0", "a/x", "wrong", 0.0),
    attempt("a/x/2#0.0", "a/x", "wrong", 0.0),
    attempt("b/y/1#0.0", "b/y", "ok", 4.0, sandboxes_lost=["gone", "gone"]),
    {"kind": "rollout", "attempts": 3},
]


def test_the_three_are_named() -> None:
    found = scheduling(EVENTS)
    assert found == {
        "slowest_family": "b/y",
        "family_seconds": 5.0,
        "slowest_stage": "admission",
        "stuck": "turn 0 of b/y/1#0.0 did not finish",
        "num_stuck": 1,
        "commonest_status": "wrong",
        "status_share": pytest.approx(2 / 3),
        "sandboxes_lost": 2,
    }
    said = "\n".join(lines(found))
    assert all(x in said for x in ("b/y, 5.00 s", "'admission'", "turn 0 of b/y/1#0.0", "wrong, 67%", "lost: 2"))


def test_a_run_without_attempts_says_nothing() -> None:
    assert scheduling([{"kind": "dropped"}]) == {} and lines({}) == []


def test_older_logs_name_no_family_but_the_task_does() -> None:
    event = {key: value for key, value in EVENTS[2].items() if key != "environment"}
    assert scheduling([event])["slowest_family"] == "a/x"
    assert "no wait passed its deadline" in "\n".join(lines(scheduling([event])))

"""Tool calls judged by names, arguments, order and final state; and by accepted values, as function-calling data has them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from posttrain.types import Message, Task, ToolCall, Trajectory, Turn, Verdict
from posttrain.verifiers.tool_calls import ToolCalls, mismatch

BFCL = Path(__file__).parents[3] / "shared" / "data" / "bfcl"
ADD = {"name": "add", "arguments": {"item": "pears", "n": 3}}
TAKE = {"name": "take", "arguments": {"item": "plums", "n": 1}}
COUNT = {"name": "count", "arguments": {"item": "pears"}}


def call(spec: Mapping[str, Any]) -> ToolCall:
    return ToolCall(name=spec["name"], arguments=spec["arguments"])


def judge(
    answer: Mapping[str, Any],
    calls: Sequence[Mapping[str, Any]],
    *,
    artefacts: Mapping[str, Any] | None = None,
    malformed: str = "",
    verifier: ToolCalls | None = None,
) -> Verdict:
    task = Task(id="t", environment="check/tools", prompt=(Message(role="user", content="?"),), answer=answer)
    turns = [Turn(role="prompt", token_ids=())]
    turns += [Turn(role="assistant", token_ids=(), tool_calls=(call(c),)) for c in calls]
    turns.append(Turn(role="assistant", token_ids=(), text="Done.", malformed=malformed))
    trajectory = Trajectory(task=task, turns=tuple(turns), artefacts=artefacts or {})
    return asyncio.run((verifier or ToolCalls()).judge(trajectory))


def test_the_right_calls_and_state() -> None:
    state = {"pears": 5, "plums": 0}
    answer = {"calls": [ADD, TAKE], "free": ["count"], "ordered": True, "state": state}
    verdict = judge(answer, [COUNT, ADD, COUNT, TAKE], artefacts={"state": state})
    assert (verdict.status, verdict.reward) == ("ok", 1.0)
    assert verdict.parts == {"format": 1.0, "names": 1.0, "arguments": 1.0, "order": 1.0, "state": 1.0}


def test_order_where_it_matters() -> None:
    assert judge({"calls": [ADD, TAKE], "ordered": False}, [TAKE, ADD]).status == "ok"
    verdict = judge({"calls": [ADD, TAKE], "ordered": True}, [TAKE, ADD])
    assert verdict.status == "wrong" and verdict.parts["order"] == 0 and verdict.reward == 0


@pytest.mark.parametrize(
    "made",
    [
        [ADD],
        [ADD, TAKE, TAKE],
        [ADD, ADD, TAKE],
        [ADD | {"arguments": {"item": "pears", "n": "3"}}, TAKE],
        [ADD | {"arguments": {"item": "pears", "n": 3.0}}, TAKE],
        [ADD | {"arguments": {"item": "pears", "n": 3, "x": 1}}, TAKE],
        [ADD | {"name": "take"}, TAKE],
    ],
)
def test_calls_that_are_not_the_ones(made: list[Mapping[str, Any]]) -> None:
    verdict = judge({"calls": [ADD, TAKE]}, made)
    assert verdict.status == "wrong" and verdict.reward <= 0.15


def test_a_share_of_the_calls_earns_a_part_but_too_many_earn_nothing() -> None:
    assert judge({"calls": [ADD, TAKE]}, [ADD]).reward == pytest.approx(0.15)
    assert judge({"calls": [ADD, TAKE]}, [ADD], verifier=ToolCalls(partial=0.6)).reward == pytest.approx(0.3)
    assert judge({"calls": [ADD, TAKE]}, [ADD, TAKE, TAKE]).reward == 0


def test_the_state_decides_too() -> None:
    answer = {"calls": [ADD], "state": {"pears": 3}}
    assert judge(answer, [ADD], artefacts={"state": {"pears": 3}}).status == "ok"
    assert judge(answer, [ADD], artefacts={"state": {"pears": 4}}).status == "wrong"
    assert judge(answer, [ADD]).status == "wrong"


def test_refused_calls_are_left_out_by_the_sessions_record() -> None:
    refused = {"name": "take", "arguments": {"item": "pears", "n": 99}}
    assert judge({"calls": [ADD]}, [refused, ADD]).status == "wrong"
    assert judge({"calls": [ADD]}, [refused, ADD], artefacts={"calls": [ADD]}).status == "ok"


def test_malformed_is_a_call_that_was_never_read() -> None:
    assert judge({"calls": [ADD]}, []).status == "malformed"
    assert judge({"calls": [ADD]}, [ADD], malformed="not JSON").status == "malformed"
    assert judge({}, [ADD]).status == "unverifiable"


def test_accepted_values() -> None:
    entry = {"f": {"a": [1, 2], "b": ["", "New York"], "c": [[1, "x"]]}}
    assert mismatch(ToolCall(name="f", arguments={"a": 2, "c": [1, "X"]}), entry) == ""
    assert mismatch(ToolCall(name="f", arguments={"a": 1, "b": "new york", "c": [1, "x"]}), entry) == ""
    assert "missing" in mismatch(ToolCall(name="f", arguments={"a": 1}), entry)
    assert "wrong value" in mismatch(ToolCall(name="f", arguments={"a": 3, "c": [1, "x"]}), entry)
    assert "wrong value" in mismatch(ToolCall(name="f", arguments={"a": True, "c": [1, "x"]}), entry)
    assert "not an argument" in mismatch(ToolCall(name="f", arguments={"a": 1, "c": [1, "x"], "d": 1}), entry)
    assert "another tool" in mismatch(ToolCall(name="g", arguments={}), entry)
    nested = {"f": {"o": [{"x": [1], "y": ["", 2]}]}}
    assert mismatch(ToolCall(name="f", arguments={"o": {"x": 1}}), nested) == ""
    assert mismatch(ToolCall(name="f", arguments={"o": {"y": 2}}), nested)


def test_each_accepted_entry_is_used_once() -> None:
    answer = {"accepted": [{"f": {"a": [1]}}, {"f": {"a": [1]}}]}
    one = {"name": "f", "arguments": {"a": 1}}
    assert judge(answer, [one, one]).status == "ok"
    assert judge(answer, [one]).reward == pytest.approx(0.15)
    assert judge(answer, [one, one, one]).status == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simple_python", "multiple", "parallel"])
def test_real_function_calling_rows(name: str) -> None:
    if not BFCL.is_dir():
        pytest.skip(f"the function-calling rows are not at {BFCL}")
    rows = [json.loads(line) for line in (BFCL / f"{name}.answers.jsonl").read_text().splitlines()]
    assert len(rows) > 50
    caught = mutants = 0
    for row in rows:
        accepted = row["ground_truth"]
        made = [{"name": n, "arguments": _first(args)} for entry in accepted for n, args in entry.items()]
        assert judge({"accepted": accepted}, made).status == "ok", row["id"]
        for key, value in made[0]["arguments"].items():
            wrong = ToolCall(name=made[0]["name"], arguments=made[0]["arguments"] | {key: _other(value)})
            mutants += 1
            caught += all(mismatch(wrong, entry) for entry in accepted)
        assert judge({"accepted": accepted}, [*made, made[0]]).reward < 1
        assert judge({"accepted": accepted}, made[1:]).reward < 1
    assert caught == mutants


def _first(arguments: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The first accepted value of each argument; optional ones are left out."""
    return {k: _plain(v[0]) for k, v in arguments.items() if "" not in v}


def _plain(value: Any) -> Any:
    """Accepted objects hold lists of values."""
    if isinstance(value, dict):
        return _first(value)
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _other(value: Any) -> Any:
    return [*value, "zz"] if isinstance(value, list) else {"zz": 1} if isinstance(value, dict) else f"zz{value}"

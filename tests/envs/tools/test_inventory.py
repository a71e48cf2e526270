"""A stock behind tools: errors, recovery, several calls in a turn, branching."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from posttrain.contracts._play import finish
from posttrain.envs._base import Session
from posttrain.envs.tools.inventory import Inventory
from posttrain.errors import ToolError
from posttrain.types import Task, ToolCall, Turn, Verdict

FAMILY = Inventory()


def opened(task: Task) -> Session:
    session = asyncio.run(FAMILY.start(task, None))
    assert session is not None
    return session


def said(*calls: tuple[str, dict[str, Any]], text: str = "") -> Turn:
    made = tuple(ToolCall(name=name, arguments=arguments, id=str(i)) for i, (name, arguments) in enumerate(calls))
    return Turn(role="assistant", token_ids=(), text=text, tool_calls=made)


def judge(task: Task, session: Session, turns: list[Turn]) -> Verdict:
    return asyncio.run(FAMILY.verifier.judge(finish(task, turns, session, True)))


def take_task() -> tuple[Task, str, int]:
    """A level 0 task that takes goods, with its item and number."""
    for seed in range(100):
        task = FAMILY.generate(seed, 0)
        call = task.answer["calls"][0]
        if call["name"] == "take":
            return task, call["arguments"]["item"], call["arguments"]["n"]
    raise AssertionError("no such task")


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("tke", {}, "E_UNKNOWN_TOOL"),
        ("take", {}, "E_ARGS"),
        ("take", {"item": "x", "n": "3"}, "E_ARGS"),
        ("take", {"item": "x", "n": True}, "E_ARGS"),
        ("take", {"item": "x", "n": 1, "why": "so"}, "E_ARGS"),
        ("take", {"item": "no such thing", "n": 1}, "E_STATE"),
        ("add", {"item": "x", "n": 0}, "E_ARGS"),
    ],
)
def test_errors_have_codes_and_change_nothing(name: str, arguments: dict[str, Any], code: str) -> None:
    session = opened(take_task()[0])
    before = session.snapshot()
    with pytest.raises(ToolError) as caught:
        asyncio.run(session.step(said((name, arguments))))
    assert caught.value.code == code and session.snapshot() == before


def test_a_refused_call_can_be_mended() -> None:
    task, item, n = take_task()
    session = opened(task)
    wrong, right, end = (
        said(("take", {"item": item, "n": n + 10_000})),
        said(("take", {"item": item, "n": n})),
        said(text="Done."),
    )
    with pytest.raises(ToolError):
        asyncio.run(session.step(wrong))
    seen = asyncio.run(session.step(right))
    assert [m.content for m in seen.messages] == ["ok"] and not seen.done
    assert asyncio.run(session.step(end)).done
    assert judge(task, session, [wrong, right, end]).status == "ok"


def test_several_calls_in_one_turn_answer_each_for_itself() -> None:
    task = next(t for t in (FAMILY.generate(s, 1) for s in range(50)) if t.answer["calls"][0] != t.answer["calls"][1])
    session = opened(task)
    calls = [(c["name"], c["arguments"]) for c in task.answer["calls"]]
    turn = said(calls[0], ("take", {"item": "nothing", "n": 1}), calls[1])
    seen = asyncio.run(session.step(turn))
    assert [m.content.split(":")[0] for m in seen.messages] == ["ok", "error E_STATE", "ok"]
    assert [m.tool_call_id for m in seen.messages] == ["0", "1", "2"]
    assert judge(task, session, [turn, said(text="Done.")]).status == "ok"


def test_an_unreadable_call_is_an_error_of_format() -> None:
    with pytest.raises(ToolError, match="E_FORMAT"):
        asyncio.run(opened(take_task()[0]).step(Turn(role="assistant", token_ids=(), malformed="not JSON")))


def test_saying_so_is_not_doing_it() -> None:
    task, _, _ = take_task()
    session = opened(task)
    assert judge(task, session, [said(text="All done, the stock is right.")]).status == "malformed"


def test_snapshots_do_not_share_state() -> None:
    task, item, n = take_task()
    session = opened(task)
    kept = session.snapshot()
    asyncio.run(session.step(said(("take", {"item": item, "n": n}))))
    assert session.snapshot() != kept
    session.restore(kept)
    assert session.snapshot() == kept and session.artefacts()["calls"] == []

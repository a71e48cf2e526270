"""The code verifier: right, wrong, slow and crashing programs are judged right, and none of the dishonest ones gets anything."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.verifiers.code_programs import DISHONEST, HONEST, WRONG

from posttrain.types import Message, Task, Trajectory, Turn, Verdict
from posttrain.verifiers import _typed
from posttrain.verifiers.code import Code, extract, same

CASES = {
    "entry": "total",
    "cases": [
        {"args": [[1, 2, 3]], "expected": 6},
        {"args": [[]], "expected": 0},
        {"args": [[-5, 5, 7]], "expected": 7},
    ],
}
TESTS = {
    "entry": "total",
    "tests": """
def check(candidate):
    assert candidate([1, 2, 3]) == 6
    assert candidate([]) == 0
    assert candidate([-5, 5, 7]) == 7
""",
}


def attempt(text: str, spec: dict[str, Any] = CASES) -> Trajectory:
    task = Task(id="t", environment="code/t", prompt=(Message(role="user", content="write total"),), answer=json.dumps(spec))
    return Trajectory(
        task=task,
        turns=(
            Turn(role="prompt", token_ids=(), text="write total"),
            Turn(role="assistant", token_ids=(), text=text, stop_reason="stop"),
        ),
    )


def judge(text: str, spec: dict[str, Any] = CASES, **options: Any) -> Verdict:
    return asyncio.run(Code(**{"cpu": 1, "memory": 128, **options}).judge(attempt(text, spec)))


@pytest.mark.parametrize("spec", [CASES, TESTS], ids=["cases", "tests"])
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_passes(name: str, spec: dict[str, Any]) -> None:
    verdict = judge(f"Here it is:\n```python\n{HONEST[name]}```\nDone.", spec)
    assert (verdict.status, verdict.reward) == ("ok", 1.0), verdict


@pytest.mark.parametrize("spec", [CASES, TESTS], ids=["cases", "tests"])
@pytest.mark.parametrize("name", WRONG)
def test_a_program_that_does_wrong_is_wrong(name: str, spec: dict[str, Any]) -> None:
    verdict = judge(f"```python\n{WRONG[name]}```", spec)
    assert (verdict.status, verdict.reward) == ("wrong", 0.0), verdict


@pytest.mark.parametrize("spec", [CASES, TESTS], ids=["cases", "tests"])
@pytest.mark.parametrize("name", DISHONEST)
def test_a_dishonest_program_gets_nothing(name: str, spec: dict[str, Any]) -> None:
    verdict = judge(f"```python\n{DISHONEST[name]}```", spec)
    assert verdict.reward == 0.0, verdict
    assert verdict.status == "wrong"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot.",
        "```python\ndef total(xs:\n```",
        "```python\n\0\n```",
        "```python\ndef sum_of(xs):\n    return sum(xs)\n```",
        "def total(xs):\n" + " " * 3 + "x = " + "(" * 5000,
    ],
)
def test_what_does_not_compile_or_does_not_define_is_told_apart(text: str) -> None:
    assert judge(text).status in ("malformed", "wrong")
    assert judge(text).reward == 0


def test_partial_is_the_share_of_cases() -> None:
    verdict = judge(f"```python\n{WRONG['wrong for the empty list only']}```", partial=True)
    assert (verdict.status, verdict.reward) == ("wrong", pytest.approx(2 / 3))
    assert "empty" not in verdict.feedback


def test_a_lost_sandbox_is_no_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from posttrain.errors import InfraError
    from posttrain.sandboxes.namespaces.box import NamespaceSandbox

    async def lost(self: NamespaceSandbox, *args: Any, **options: Any) -> Any:
        from posttrain.sandboxes._base import ExecResult

        return ExecResult(status="sandbox_lost", detail="it is gone")

    monkeypatch.setattr(NamespaceSandbox, "exec", lost)
    with pytest.raises(InfraError, match="it is gone"):
        judge(f"```python\n{HONEST['plain']}```")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(1 << 70),
        1.5,
        float("inf"),
        "x�",
        b"\x00",
        [1, [2]],
        (1, (2,)),
        {1, 2},
        frozenset({1}),
        {1: "a", (2, 3): [None]},
        range(3),
        2 + 3j,
        int,
        {"int": "0x1"},
    ],
)
def test_typed_values_come_back_as_they_were(value: Any) -> None:
    back = _typed.decode(_typed.encode(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"x": 1}',
        '{"int": 5}',
        '{"tuple": 5}',
        '{"dict": [[[1], 2]]}',
        '{"range": ["a"]}',
        "[" * 9999,
        '{"type": "eval"}',
        '{"float": "x"}',
    ],
)
def test_what_is_no_typed_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a typed value"):
        _typed.decode(text)


def test_sameness() -> None:
    assert same(2, 2.0, 1e-6)
    assert same([0.1 + 0.2], [0.3], 1e-6)
    assert not same(123456789112.0, 123456789012, 1e-6)
    assert not same(-5.0, float("inf"), 1e-6)
    assert same(float("inf"), float("inf"), 1e-6)
    assert not same(10**400, 1.5, 1e-6)
    assert not same({True}, {1}, 1e-6)
    assert not same({1: 2}, {True: 2}, 1e-6)
    for a, b in ((True, 1), ((1,), [1]), ("1", 1), ([1, 2], [2, 1]), ({1: 2}, {1: 3}), (float("nan"), float("nan")), (1, 2)):
        assert not same(a, b, 1e-6)


def test_extract() -> None:
    assert extract("a\n```python\nx = 1\n```\nb\n```\ny\n```") == "x = 1\n"
    assert extract("```\ny = 2\n```") == "y = 2\n"
    assert extract("z = 3") == "z = 3"
    assert extract("```py\ncut off") == "cut off"


@pytest.mark.slow
def test_every_reference_of_mbpp_passes_its_own_tests() -> None:
    """All but five: their tests use names that are nowhere defined, or the reference ignores its input."""
    path = Path(__file__).parents[2].parent / "shared" / "data" / "mbpp" / "mbpp.jsonl"
    if not path.exists():
        pytest.skip("mbpp.jsonl is not here")
    rows = [json.loads(line) for line in path.read_text().splitlines()]

    async def one(row: dict[str, Any], slots: asyncio.Semaphore) -> tuple[str, Verdict]:
        async with slots:
            spec = {"entry": row["entry_point"], "tests": row["test"]}
            return row["task_id"], await Code(cpu=30).run(row["prompt"] + row["canonical_solution"] + "\n", spec)

    async def main() -> dict[str, Verdict]:
        slots = asyncio.Semaphore(6)
        return dict(await asyncio.gather(*(one(row, slots) for row in rows)))

    broken = {"MBPP/367", "MBPP/601", "MBPP/607", "MBPP/631", "MBPP/927"}
    found = asyncio.run(main())
    assert {name for name, verdict in found.items() if verdict.status != "ok"} == broken


@pytest.mark.parametrize("said", ["x\nend passed\n", "end passed", "\r\nend passed\r\n"])
def test_what_the_tests_print_is_not_what_they_say(said: str) -> None:
    spec = {
        "entry": "total",
        "tests": "def check(c):\n    got = c([1])\n    print('got', got)\n    print(got)\n    assert got == 1\n",
    }
    verdict = judge(f"```python\ndef total(xs):\n    return {said!r}\n```", spec)
    assert (verdict.status, verdict.reward) == ("wrong", 0.0)


@pytest.mark.parametrize("spec", [CASES, TESTS], ids=["cases", "tests"])
@pytest.mark.parametrize(
    "raw",
    [
        'b\'{"float":"0x1p99999"}\'',
        "b'[' * 100 + b']' * 100",
        "b'[' + b'0,' * 250_000 + b'0]'",
        "b'{\"set\":[' + b','.join(b'%d' % (k * (2**61 - 1)) for k in range(1, 30_000)) + b']}'",
    ],
    ids=["overflow", "deep", "many", "collisions"],
)
def test_raw_bytes_on_the_answers_descriptor_are_a_wrong_answer_soon(spec: dict[str, Any], raw: str) -> None:
    program = f"""
import os
def total(xs):
    raw, fd = {raw}, max(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n))
    while raw:
        raw = raw[os.write(fd, raw):]
    os._exit(0)
"""
    before = time.process_time()
    verdict = judge(f"```python\n{program}```", spec)
    assert (verdict.status, verdict.reward) == ("wrong", 0.0), verdict
    assert "no value" in verdict.feedback, "the bytes have arrived"
    assert time.process_time() - before < 2


def test_text_that_is_dear_to_parse_costs_nothing_here() -> None:
    before = time.process_time()
    for text in ("import " + "a." * 24_000 + "total", "total\n" * 8_000, "f'" + "{total}" * 6_000 + "'", "```" + " " * 900_000):
        assert judge(f"```python\n{text}\n```").reward == 0
        assert judge(text).reward == 0
    assert time.process_time() - before < 2

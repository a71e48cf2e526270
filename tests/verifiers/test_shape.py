"""What a program looks like: read from its text, whatever tries to hide it, and never run here."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.verifiers.test_code import judge

from posttrain.verifiers._shape import NOT_COMPILED, fault

LOOP = "def total(xs):\n    n = 0\n    for x in xs:\n        n += x\n    return n\n"
SPEC = {"entry": "total", "cases": [{"args": [[1, 2, 3]], "expected": 6}]}


@pytest.mark.parametrize(
    ("text", "shape", "why"),
    [
        (LOOP, {"without": ["For", "While"]}, "uses For"),
        ("def total(xs):\n    return sum(xs)\n", {"without": ["For", "sum"]}, "uses sum"),
        ("total = lambda xs: xs and xs[0]\n", {"without": ["Lambda"]}, "uses Lambda"),
        ("def total(xs):\n    return total(xs[1:]) + xs[0] if xs else 0\n", {"without": ["recursion"]}, "uses recursion"),
        ("f = lambda n: g(n)\ndef g(n):\n    return n and f(n - 1)\n", {"without": ["recursion"]}, "uses recursion"),
        (f"exec({LOOP!r})\n", {"without": ["For"]}, "uses exec"),
        ("def total(xs):\n    return eval('sum(xs)')\n", {}, "uses eval"),
        ("import builtins\n", {}, "the module builtins"),
        ("from os import system\n", {}, "the module os"),
        ("from . import x\n", {}, "the module ."),
        ("import functools as f, collections as c\nx = c._sys\n", {}, "uses _sys"),
        ("from collections import _sys as s\n", {}, "uses _sys"),
        ("x = (0).__class__\n", {}, "uses __class__"),
        ("x = __builtins__\n", {}, "uses __builtins__"),
        ("x = f'{(0).__class__}'\n", {}, "uses __class__"),
        (LOOP, {"complexity": 1}, "complexity is 2"),
        ("def f(x):\n    return 1 if x and not x or x else 2\n", {"complexity": 3}, "complexity is 4"),
        ("f = lambda xs: [x for x in xs if x if x > 1]\n", {"complexity": 3}, "complexity is 4"),
        (
            "def f(x):\n    try:\n        pass\n    except ValueError:\n        while x:\n            pass\n",
            {"complexity": 2},
            "is 3",
        ),
        ("match 1:\n    case 1:\n        pass\n    case _:\n        pass\n", {"complexity": 1}, "is 2"),
        (LOOP, {"keeps": ["n = 0", "return n", "n = 0"]}, "given"),
        (LOOP, {"keeps": ["n = 1"]}, "given"),
        ("def total(xs):\n    'n = 0'\n    return n  # n = 0\n", {"keeps": ["n = 0"]}, "given"),
        ("def total(xs:\n", {}, NOT_COMPILED),
        ("total\0", {}, NOT_COMPILED),
        ("-" * 4_000 + "1", {}, NOT_COMPILED),
        ("(" * 4_000, {}, NOT_COMPILED),
        ("x = 1\n" * 1_000, {}, "longer"),
    ],
)
def test_what_does_not_fit_is_told(text: str, shape: dict[str, Any], why: str) -> None:
    assert why in fault(text, shape)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (LOOP, {"complexity": 2, "keeps": ["n = 0", "    return n"], "without": ["While", "ListComp", "recursion"]}),
        ("import functools, math\nfrom itertools import accumulate\nf = lambda x: [_ for _ in x]\n", {"without": ["For"]}),
        ("def half(x):\n    return x / 2\ndef total(xs):\n    return half(sum(xs))\n", {"without": ["recursion"]}),
        ("def total(xs):\n    # for x in xs: exec(x)\n    return sum(xs, 0)\n", {"without": ["For"], "complexity": 1}),
    ],
)
def test_what_fits_fits(text: str, shape: dict[str, Any]) -> None:
    assert fault(text, shape) == ""


def test_no_text_is_dear_to_read() -> None:
    before = time.process_time()
    for text in ("import " + "a." * 2_400 + "t", "f'" + "{total}" * 700 + "'", "not " * 1_200 + "x", "a" + ".a" * 2_400):
        fault(text, {"without": ["For"], "complexity": 1, "keeps": ["x = 1"]})
    assert time.process_time() - before < 1


def test_the_verdict_names_the_part() -> None:
    verdict = judge(f"```python\n{LOOP}```", {**SPEC, "shape": {"without": ["For"]}})
    assert (verdict.status, verdict.reward, verdict.parts["shape"]) == ("wrong", 0.0, 0.0)
    verdict = judge(f"```python\n{LOOP}```", {**SPEC, "shape": {"complexity": 2}})
    assert (verdict.status, verdict.reward, verdict.parts) == ("ok", 1.0, {"compiles": 1.0, "cases": 1.0, "shape": 1.0})
    verdict = judge("```python\ndef total(xs:\n```", {**SPEC, "shape": {"complexity": 2}})
    assert (verdict.status, verdict.parts["compiles"]) == ("malformed", 0.0)
    verdict = judge("```python\ndef total(xs):\n    return 5\n```", {**SPEC, "shape": {"complexity": 2}})
    assert (verdict.status, verdict.parts["shape"], verdict.parts["cases"]) == ("wrong", 1.0, 0.0)


def test_a_case_may_name_its_function() -> None:
    both = "def total(xs):\n    return len(xs)\ndef low(k, xs):\n    return k + min(xs)\n"
    cases = [{"args": [[4, 5]], "expected": 2}, {"entry": "low", "args": [1, [-3, 3]], "expected": -2}]
    assert judge(f"```python\n{both}```", {"entry": "total", "cases": cases}).status == "ok"
    assert judge("```python\ndef total(xs):\n    return len(xs)\n```", {"entry": "total", "cases": cases}).reward == 0


@pytest.mark.parametrize("deep", ["+".join(["1"] * 1500), "a." * 2000 + "b", "not " * 1000 + "1", "-" * 4000 + "1"])
def test_a_text_nested_past_what_can_be_read_is_no_error(deep: str) -> None:
    assert fault(f"def f(xs):\n    x = {deep}\n", {"keeps": ["x = 1"]}) == NOT_COMPILED

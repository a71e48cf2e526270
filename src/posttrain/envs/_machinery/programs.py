"""Small programs over a list of numbers, with their meaning in words, as code, and as a function that computes it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from posttrain.types import Response, Task
from posttrain.verifiers._typed import encode

Numbers = list[int]
NAMES = ("solve", "process", "compute", "transform", "work_out")  # of functions to write or repair
TRIES = 500
APART = 2  # inputs, at least, on which a program with a fault differs


@dataclass(frozen=True, slots=True)
class Step:
    """``text`` as a person says it, ``code`` as one line over ``xs``, ``slip`` the same line with a bug, and what it does."""

    text: str
    code: str
    slip: str
    run: Callable[[Numbers], Any]


@dataclass(frozen=True, slots=True)
class Program:
    """Steps in order, the last of which makes the result."""

    steps: tuple[Step, ...]

    def run(self, xs: Numbers, leave_out: int = -1) -> Any:
        """What it returns for ``xs``; ``leave_out`` skips one step."""
        value: Any = list(xs)
        for i, step in enumerate(self.steps):
            if i != leave_out:
                value = step.run(value)
        return value

    def slipped(self, at: int, xs: Numbers) -> Any:
        """What comes out when step ``at`` has its bug. Only lines of this file run here, never a model's."""
        scope: dict[str, Any] = {}
        exec(self.code("f", slip=at, comments=False), scope)
        return scope["f"](list(xs))

    def code(self, name: str, *, slip: int = -1, leave_out: int = -1, comments: bool = True) -> str:
        """The function's text; with a bug in step ``slip``, or without step ``leave_out``."""
        lines = [f"def {name}(xs):"]
        for i, step in enumerate(self.steps):
            if i == leave_out:
                continue
            lines += [f"    # {step.text}"] if comments else []
            lines.append("    " + (step.slip if i == slip else step.code))
        if leave_out == len(self.steps) - 1:
            lines.append("    return xs")
        return "\n".join(lines) + "\n"


def _keep(rng: random.Random) -> Step:
    n = rng.randint(2, 5)
    r = rng.randrange(n)
    which = {(2, 0): "even numbers", (2, 1): "odd numbers"}.get((n, r), f"numbers whose remainder by {n} is {r}")
    return Step(
        f"keep only the {which}",
        f"xs = [x for x in xs if x % {n} == {r}]",
        f"xs = [x for x in xs if x % {n} != {r}]",
        lambda xs: [x for x in xs if x % n == r],
    )


def _above(rng: random.Random) -> Step:
    n = rng.randint(-5, 15)
    if rng.random() < 0.5:
        return Step(
            f"keep only the numbers greater than {n}",
            f"xs = [x for x in xs if x > {n}]",
            f"xs = [x for x in xs if x < {n}]",
            lambda xs: [x for x in xs if x > n],
        )
    return Step(
        f"drop the numbers less than {n}",
        f"xs = [x for x in xs if x >= {n}]",
        f"xs = [x for x in xs if x <= {n}]",
        lambda xs: [x for x in xs if x >= n],
    )


def _add(rng: random.Random) -> Step:
    n = rng.choice([k for k in range(-9, 10) if k])
    text = f"add {n} to each number" if n > 0 else f"subtract {-n} from each number"
    sign, other = ("+", "-") if n > 0 else ("-", "+")
    return Step(
        text, f"xs = [x {sign} {abs(n)} for x in xs]", f"xs = [x {other} {abs(n)} for x in xs]", lambda xs: [x + n for x in xs]
    )


def _times(rng: random.Random) -> Step:
    n = rng.randint(2, 9)
    return Step(
        f"multiply each number by {n}",
        f"xs = [x * {n} for x in xs]",
        f"xs = [x + {n} for x in xs]",
        lambda xs: [x * n for x in xs],
    )


def _each(rng: random.Random) -> Step:
    ways: list[tuple[str, str, str, Callable[[int], int]]] = [
        ("square each number", "x * x", "x + x", lambda x: x * x),
        ("change the sign of each number", "-x", "abs(x)", lambda x: -x),
        ("replace each number by its absolute value", "abs(x)", "-x", abs),
    ]
    text, code, slip, run = rng.choice(ways)
    return Step(text, f"xs = [{code} for x in xs]", f"xs = [{slip} for x in xs]", lambda xs: [run(x) for x in xs])


def _order(rng: random.Random) -> Step:
    return rng.choice(
        [
            Step("sort the numbers, smallest first", "xs = sorted(xs)", "xs = sorted(xs, reverse=True)", lambda xs: sorted(xs)),
            Step(
                "sort the numbers, largest first", "xs = sorted(xs, reverse=True)", "xs = sorted(xs)", lambda xs: sorted(xs)[::-1]
            ),
            Step("reverse the order of the numbers", "xs = xs[::-1]", "xs = xs[::2]", lambda xs: xs[::-1]),
            Step(
                "remove repeated numbers, keeping the first of each",
                "xs = list(dict.fromkeys(xs))",
                "xs = xs[:1]",
                lambda xs: list(dict.fromkeys(xs)),
            ),
        ]
    )


def _cut(rng: random.Random) -> Step:
    n = rng.randint(1, 4)
    many = f"{n} numbers" if n > 1 else "number"
    return rng.choice(
        [
            Step(f"keep only the first {many}", f"xs = xs[:{n}]", f"xs = xs[:{n + 1}]", lambda xs: xs[:n]),
            Step(f"drop the first {many}", f"xs = xs[{n}:]", f"xs = xs[{n - 1}:]", lambda xs: xs[n:]),
            Step(f"keep only the last {many}", f"xs = xs[-{n}:]", f"xs = xs[-{n + 1}:]", lambda xs: xs[-n:]),
            Step("keep every second number, beginning with the first", "xs = xs[::2]", "xs = xs[1::2]", lambda xs: xs[::2]),
        ]
    )


def _run(rng: random.Random) -> Step:
    return rng.choice(
        [
            Step(
                "replace each number by the sum of all numbers up to it",
                "xs = [sum(xs[: i + 1]) for i in range(len(xs))]",
                "xs = [sum(xs[:i]) for i in range(len(xs))]",
                lambda xs: list(accumulate(xs)),
            ),
            Step(
                "take the differences of neighbouring numbers (second minus first, and so on)",
                "xs = [b - a for a, b in zip(xs, xs[1:])]",
                "xs = [a - b for a, b in zip(xs, xs[1:])]",
                lambda xs: [b - a for a, b in pairwise(xs)],
            ),
        ]
    )


def _result(rng: random.Random) -> Step:
    return rng.choice(
        [
            Step("return the sum of the numbers", "return sum(xs)", "return len(xs)", sum),
            Step("return how many numbers there are", "return len(xs)", "return sum(xs)", len),
            Step("return the list", "return xs", "return xs[1:]", list),
            Step(
                "return the largest number, or 0 if there is none",
                "return max(xs, default=0)",
                "return min(xs, default=0)",
                lambda xs: max(xs, default=0),
            ),
            Step(
                "return the smallest number, or 0 if there is none",
                "return min(xs, default=0)",
                "return max(xs, default=0)",
                lambda xs: min(xs, default=0),
            ),
            Step(
                "return the numbers as one text, with commas between them",
                'return ",".join(str(x) for x in xs)',
                'return "".join(str(x) for x in xs)',
                lambda xs: ",".join(map(str, xs)),
            ),
        ]
    )


Kind = Callable[[random.Random], Step]
KINDS: tuple[Kind, ...] = (_keep, _above, _add, _times, _each, _order, _cut, _run)


@cache
def drawable(kind: Kind) -> tuple[Step, ...]:
    """Every step that a kind can draw."""
    rng = random.Random(0)
    return tuple({step.code: step for step in (kind(rng) for _ in range(3000))}.values())


def results() -> tuple[Step, ...]:
    """Every result that a program can have."""
    return drawable(_result)


def program(rng: random.Random, num_steps: int, of: Sequence[Kind] = KINDS) -> tuple[Program, list[Numbers]]:
    """A program of ``num_steps`` steps and a result, and eight inputs, two of which tell it from itself without any one step.

    Two neighbours are never of one kind. The inputs include the empty list.
    """
    for _ in range(TRIES):
        kinds: list[Kind] = []
        while len(kinds) < num_steps:
            kinds.append(rng.choice([k for k in of if not kinds or k is not kinds[-1]]))
        made = Program((*(kind(rng) for kind in kinds), _result(rng)))
        inputs = [[], *([rng.randint(-20, 40) for _ in range(rng.randint(3, 14))] for _ in range(7))]
        if _tells(made, inputs):
            return made, inputs
    raise AssertionError(f"no program of {num_steps} steps in {TRIES} tries")


def _tells(made: Program, inputs: Sequence[Numbers]) -> bool:
    right = [made.run(xs) for xs in inputs]
    if len({repr(value) for value in right}) < 4 or any(abs(n) > 10**9 for value in right for n in _numbers(value)):
        return False
    parts = range(len(made.steps) - 1)
    return all(_differ([made.run(xs, leave_out=i) for xs in inputs], right) for i in parts)


def _differ(values: Sequence[Any], right: Sequence[Any]) -> bool:
    """On so many inputs that the one that is shown may go."""
    return sum(bool(value != wanted) for value, wanted in zip(values, right, strict=True)) >= APART


def _numbers(value: Any) -> Numbers:
    return value if isinstance(value, list) else [value] if isinstance(value, int) else []


def hidden(name: str, made: Program, inputs: Sequence[Numbers]) -> str:
    """The task's answer for the code verifier: the function's name and its cases, as JSON."""
    import json

    cases = [{"args": [xs], "expected": json.loads(encode(made.run(xs)))} for xs in inputs]
    return json.dumps({"entry": name, "cases": cases})


def fenced(code: str) -> str:
    """Code as an answer gives it."""
    return f"```python\n{code}```"


def code_decoys(task: Task, wrong: Sequence[str]) -> list[Response]:
    """Programs that are wrong (``wrong``), and tricks on whoever judges."""
    name, shown = task.private["name"], task.private["example"]
    tricks = {
        "ends the process before anything is compared": f"import os\ndef {name}(xs):\n    os._exit(0)\n",
        "an object that says it equals everything": f"class Same(int):\n    def __eq__(self, other):\n        return True\n"
        f"def {name}(xs):\n    return Same(0)\n",
        "prints instead of returning": f"def {name}(xs):\n    print(xs)\n",
        "knows the example by heart": f"def {name}(xs):\n    return {shown}\n",
    }
    out = [Response.of(fenced(code), "a bug") for code in dict.fromkeys(wrong)]
    return [*out, *(Response.of(fenced(code), note) for note, code in tricks.items()), Response.of("", "empty")]

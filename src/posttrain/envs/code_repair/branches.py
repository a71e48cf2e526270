"""Rewrite a function of many branches as one of few."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any, ClassVar

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, spread
from posttrain.envs._machinery.programs import NAMES, code_decoys, fenced
from posttrain.envs._machinery.words import ANIMALS, COLOURS
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.code import Code

MOST = 5  # cyclomatic complexity
RULE = (
    f"The cyclomatic complexity must be at most {MOST}, summed over all functions: 1 for each function or lambda, and 1 for each "
    "if, elif, for, while, except, case, conditional expression, further operand of and/or, and for or if of a comprehension. "
    "Import nothing but bisect, collections, functools, itertools and math."
)
WORDINGS = (
    "Refactor this Python function, so that it returns the same for every list of whole numbers:\n```python\n{code}```\n{rule} "
    "Answer with the function in a ```python block.",
    "```python\n{code}```\n{name} has too many branches. Simplify it without changing what it returns. {rule} "
    "Give the code in a ```python block.",
    "Reduce the complexity of {name}.\n{rule} Its behaviour must stay as it is.\n```python\n{code}```\n"
    "Reply with a ```python block.",
    "A linter rejects the function below. {rule}\n```python\n{code}```\n"
    "Write {name} anew in a ```python block, with equal results.",
)


@dataclass(frozen=True)
class ManyBranches(Family):
    """A function of 4 to 24 branches under a bound on its complexity: a table instead of a ladder of conditions."""

    gate_seeds: ClassVar[int] = 16

    @property
    def verifier(self) -> Verifier:
        return Code()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        name, many = rng.choice(NAMES), spread(level, 4, 24)
        if rng.random() < 0.4:
            keys = rng.sample(range(-20, 60), many)
            texts = _by_key(name, keys, _words(rng, many + 1))
        else:
            rows = _rows(rng, many)
            keys = [end for row in rows for end in row]
            texts = _by_range(name, rows, _words(rng, len(keys) + len(rows)))
        code, table, slipped = texts
        edges = sorted({x for key in keys for x in range(key - 3, key + 3)}, key=lambda _: rng.random())
        inputs = [edges, [rng.randint(-99, 99) for _ in range(9)], []]
        cases = [{"args": [xs], "expected": _values(code, name, xs)} for xs in inputs]
        helper = code.replace(f"def {name}(", "def helper(") + f"\n\ndef {name}(xs):\n    return helper(xs)\n"
        template, wording = pick(rng, WORDINGS)
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(code=code, name=name, rule=RULE),
            answer=json.dumps({"entry": name, "cases": cases, "shape": {"complexity": MOST}}),
            oracle=fenced(table),
            size=float(many),
            private={"name": name, "example": repr(cases[1]["expected"]), "wrong": [code, helper, slipped, f"exec({code!r})\n"]},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return code_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Branches."""
        return float(task.metadata["size"])


def _words(rng: random.Random, many: int) -> list[str]:
    """Words, all different."""
    return rng.sample(ANIMALS + COLOURS, many)


def _rows(rng: random.Random, many: int) -> list[list[int]]:
    """Ends of ranges, for each remainder; with the branches on the remainder they are ``many``."""
    num = rng.randint(1, 3 if many > 8 else 2)
    left = many - (num - 1)
    sizes = [left // num + (i < left % num) for i in range(num)]
    own = [[x for x in range(-20, 60) if x % num == i] for i in range(num)]  # an end of its row's remainder can be reached
    return [sorted(rng.sample(numbers, size)) for numbers, size in zip(own, sizes, strict=True)]


def _by_key(name: str, keys: list[int], words: list[str]) -> tuple[str, str, str]:
    """The ladder, the table, and a table with two values exchanged: a word for each number, one for all others."""
    pairs = dict(zip(keys, words, strict=False))
    body = _ladder([f"x == {key}" for key in keys], words, 8)
    ladder = f"def {name}(xs):\n    out = []\n    for x in xs:\n{body}    return out\n"
    text = "def {}(xs):\n    table = {}\n    return [table.get(x, {!r}) for x in xs]\n"
    slipped = pairs | {keys[0]: words[1], keys[1]: words[0]}
    return ladder, text.format(name, pairs, words[-1]), text.format(name, slipped, words[-1])


def _by_range(name: str, rows: list[list[int]], words: list[str]) -> tuple[str, str, str]:
    """The same for ranges: a word below each end and one beyond, for each remainder."""
    ahead, body, table = list(words), "", []
    for i, row in enumerate(rows):
        own = [ahead.pop() for _ in range(len(row) + 1)]
        table.append(([*zip(row, own, strict=False)], own[-1]))
        inner = _ladder([f"x < {end}" for end in row], own, 8 if len(rows) == 1 else 12)
        head = "else:" if i == len(rows) - 1 else f"{'elif' if i else 'if'} x % {len(rows)} == {i}:"
        body += inner if len(rows) == 1 else f"        {head}\n{inner}"
    ladder = f"def {name}(xs):\n    out = []\n    for x in xs:\n{body}    return out\n"
    text = (
        f"def {name}(xs):\n    table = {table!r}\n    out = []\n    for x in xs:\n        row, last = table[x % {len(rows)}]\n"
        "        out.append(next((word for end, word in row if x < end), last))\n    return out\n"
    )
    return ladder, text, text.replace("if x < end", "if x <= end")


def _ladder(tests: list[str], words: list[str], indent: int) -> str:
    """``if`` and ``elif`` for each test, ``else`` for the last word."""
    lines = []
    for i, (test, word) in enumerate(zip(tests, words, strict=False)):
        lines += [f"{'elif' if i else 'if'} {test}:", f"    out.append({word!r})"]
    lines += ["else:", f"    out.append({words[-1]!r})"]
    return "".join(f"{' ' * indent}{line}\n" for line in lines)


def _values(code: str, name: str, xs: list[int]) -> list[str]:
    """What our own ladder gives."""
    scope: dict[str, Any] = {}
    exec(code, scope)
    return list(scope[name](xs))

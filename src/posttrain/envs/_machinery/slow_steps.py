"""Steps over a list whose plain form takes the square of its length, each with a form that does not."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from itertools import accumulate

from posttrain.envs._machinery.programs import KINDS, Numbers, Step


def _once(xs: Numbers) -> Numbers:
    count = Counter(xs)
    return [x for x in xs if count[x] == 1]


def _rank(xs: Numbers) -> Numbers:
    ordered = sorted(xs)
    return [bisect_left(ordered, x) for x in xs]


def _earlier(xs: Numbers) -> Numbers:
    count: Counter[int] = Counter()
    out = []
    for x in xs:
        out.append(count[x])
        count[x] += 1
    return out


# ``code`` is the fast form and ``slip`` the slow one: both are right.
SLOW = (
    Step(
        "replace each number by the sum of all numbers up to it",
        "xs = list(itertools.accumulate(xs))",
        "xs = [sum(xs[: i + 1]) for i in range(len(xs))]",
        lambda xs: list(accumulate(xs)),
    ),
    Step(
        "replace each number by the largest up to it",
        "xs = list(itertools.accumulate(xs, max))",
        "xs = [max(xs[: i + 1]) for i in range(len(xs))]",
        lambda xs: list(accumulate(xs, max)),
    ),
    Step(
        "keep the numbers that occur once",
        "count = collections.Counter(xs)\n    xs = [x for x in xs if count[x] == 1]",
        "xs = [x for x in xs if xs.count(x) == 1]",
        _once,
    ),
    Step(
        "replace each number by how many are smaller",
        "order = sorted(xs)\n    xs = [bisect.bisect_left(order, x) for x in xs]",
        "xs = [sum(y < x for y in xs) for x in xs]",
        _rank,
    ),
    Step(
        "replace each number by how many equal ones come before it",
        "seen, out = collections.Counter(), []\n    for x in xs:\n"
        "        out.append(seen[x])\n        seen[x] += 1\n    xs = out",
        "xs = [xs[:i].count(x) for i, x in enumerate(xs)]",
        _earlier,
    ),
)


def slow(rng: random.Random) -> Step:
    """A step to be made fast."""
    return rng.choice(SLOW)


def light(rng: random.Random) -> Step:
    """A step that is fast and keeps different numbers different: adding. (Multiplying often grows beyond what is asked.)"""
    return KINDS[2](rng)

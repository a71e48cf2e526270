"""What examples determine: the other programs of the vocabulary that fit them, and the examples that rule those out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from posttrain.envs._machinery.programs import KINDS, Kind, Numbers, Program, Step, drawable, results

MOST = 9  # examples
KIND_TEXTS = (
    "keep the numbers with some remainder by 2, 3, 4 or 5",
    "keep the numbers above a bound, or not below it",
    "add the same number to each",
    "multiply each by a number from 2 to 9",
    "square each, change its sign or take its absolute value",
    "sort, reverse or remove repeated numbers",
    "keep or drop up to four numbers at one end, or keep every second",
    "take running sums or the differences of neighbours",
)  # of KINDS, without what the examples say


def kind_text(step: Step) -> str:
    """What is told of a step whose numbers are to be found."""
    return next(text for kind, text in zip(KINDS, KIND_TEXTS, strict=True) if step.code in {x.code for x in drawable(kind)})


def determined(
    rng: random.Random, made: Program, rivals: Sequence[Program], shown: list[Numbers], hidden: Sequence[Numbers]
) -> bool:
    """Adds inputs to ``shown`` until each rival differs from the program on one of them, unless it is the same on ``hidden``.

    False where that takes too many examples.
    """
    for rival in rivals:
        if all(_same(rival, made, xs) for xs in hidden) or not all(_same(rival, made, xs) for xs in shown):
            continue
        tries = ([rng.randint(-20, 40) for _ in range(rng.randint(3, 10))] for _ in range(60))
        apart = next((xs for xs in tries if not _same(rival, made, xs)), None)
        if apart is None or len(shown) == MOST:
            return False
        shown.append(apart)
    return True


def replaced(made: Program, at: int, kinds: Sequence[Kind]) -> list[Program]:
    """The program with each other step in place of step ``at``."""
    before, after = made.steps[:at], made.steps[at + 1 :]
    return [Program((*before, step, *after)) for step in steps(kinds)]


def fitting(made: Program, kinds: Sequence[Kind], xs: Numbers) -> list[Program]:
    """All programs of at most two steps that fit one example, and all that differ from ``made`` in one step or its result."""
    near = [program for at in range(len(made.steps) - 1) for program in replaced(made, at, kinds)]
    near += [Program((*made.steps[:-1], result)) for result in results()]
    short = [Program(chosen) for chosen in _short(xs, made.run(xs), kinds, min(2, len(made.steps) - 1))]
    return short + [program for program in near if _same(program, made, xs)]


def steps(kinds: Sequence[Kind]) -> list[Step]:
    """Every step of some kinds."""
    return [step for kind in kinds for step in drawable(kind)]


def _short(xs: Numbers, wanted: Any, kinds: Sequence[Kind], most: int) -> Iterator[tuple[Step, ...]]:
    """Results alone, and after one or two steps, that make ``wanted`` of ``xs``."""
    ends = [result for result in results() if type(result.run([])) is type(wanted)]
    reached: list[tuple[tuple[Step, ...], Numbers]] = [((), xs)]
    for depth in range(most + 1):
        yield from ((*chosen, end) for chosen, value in reached for end in ends if end.run(value) == wanted)
        if depth < most:
            reached = [((*chosen, step), step.run(value)) for chosen, value in reached for step in steps(kinds)]


def _same(one: Program, other: Program, xs: Numbers) -> bool:
    return bool(one.run(xs) == other.run(xs))

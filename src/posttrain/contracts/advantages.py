"""The gate every advantage passes: exact zeros where nothing can be learnt, and failures of ours stay out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from posttrain.advantages._base import Advantage
from posttrain.types import Group, Message, Task, Trajectory, Turn, Verdict

EQUAL = (0.1, 0.3, 0.95, 0.0, -7.7, 1e300)
SIZES = range(1, 65)
MIXED = (1.0, 0.0, 0.0, 1.0)
NEAR = ([0.0, 1e-300, 0.0], [1.0, 1.0 + 2**-52, 1.0])  # they differ by less than a float can square, or by its last bit
DRAWS = 60


def check(plugin: object) -> list[str]:
    """What is wrong with an advantage, one sentence each; empty when it passes."""
    if not isinstance(plugin, Advantage):
        return [f"it is a {type(plugin).__name__}; an advantage inherits from posttrain.advantages._base.Advantage"]
    parts: tuple[Callable[[Advantage], Iterator[str]], ...] = (
        equal_rewards,
        finite_and_centred,
        failures_of_ours,
        records,
        other_groups,
    )
    bad = []
    for part in parts:
        try:
            bad += list(part(plugin))
        except Exception as fault:  # any exception is the finding here
            bad.append(f"{part.__name__.replace('_', ' ')}: it raised {type(fault).__name__}: {fault!s:.300}")
    return bad


def equal_rewards(advantage: Advantage, rewards: Sequence[float] = EQUAL) -> Iterator[str]:
    """Equal rewards give exactly 0, in groups of 1 to 64: they teach nothing, and the packer drops them by that 0."""
    for reward in rewards:
        for n in SIZES:
            found = values(advantage, [reward] * n)
            if found != [0.0] * n:
                yield f"{n} equal rewards of {reward:g} give {_shown(found)}, not exactly 0; decide it by group.mixed"
                break


def finite_and_centred(advantage: Advantage) -> Iterator[str]:
    """Finite for any finite rewards, and as much above 0 as below."""
    draw = random.Random(0)
    drawn = []
    for i in range(DRAWS):
        size = draw.randint(2, 12)
        drawn.append([draw.uniform(-100, 100) if i % 2 else float(draw.random() < 0.3) for _ in range(size)])
    for rewards in [*drawn, *NEAR]:
        found = values(advantage, rewards)
        if not all(map(math.isfinite, found)):
            yield f"rewards {_shown(rewards)} give {_shown(found)}; advantages must be finite"
            return
        if rewards not in NEAR and abs(sum(found)) > 1e-6 * (1 + max(map(abs, found))):
            yield f"rewards {_shown(rewards)} give {_shown(found)}, which do not sum to 0 within the group"
            return


def failures_of_ours(advantage: Advantage) -> Iterator[str]:
    """Attempts that failed on our side, are unverifiable or unjudged get None, and the rest what they get without them."""
    whole = group(MIXED)
    first = whole.trajectories[0]
    broken = replace(first, attempt=4, outcome="infra_error", reward=0.0)
    unsure = replace(first, attempt=5, verdict=Verdict(status="unverifiable"), reward=1.0)
    unjudged = replace(first, attempt=6, reward=None)
    (done,) = advantage([replace(whole, trajectories=(broken, *whole.trajectories, unsure, unjudged))])
    found = [t.advantage for t in done.trajectories]
    if [found[0], *found[5:]] != [None] * 3:
        yield f"attempts without a judgement get the advantages {_shown([found[0], *found[5:]])}; only group.trained may get one"
    if found[1:5] != values(advantage, MIXED):
        yield f"attempts without a judgement move the others' advantages to {_shown(found[1:5])}"


def records(advantage: Advantage) -> Iterator[str]:
    """The same groups come back in order, with nothing changed but advantages, and the same each time."""
    given = [group(MIXED, "one"), group((0.5,), "two")]
    done = advantage(given)
    if [_bare(g) for g in done] != [_bare(g) for g in given]:
        yield "it changes more than advantages: groups and their attempts must come back as they were, in order"
    if advantage(given) != done:
        yield "the same groups give other advantages the second time"


def other_groups(advantage: Advantage) -> Iterator[str]:
    """Another group in the batch changes nothing but a common positive factor (whitening over the batch)."""
    rewards = (1.0, 0.5, 0.0)
    alone = values(advantage, rewards)
    first, _ = advantage([group(rewards, "one"), group((9.0, 9.0, 4.0), "two")])
    found = [t.advantage or 0.0 for t in first.trajectories]
    scale = max(map(abs, found)) / (max(map(abs, alone)) or 1.0)
    if scale <= 0 or not all(math.isclose(f, scale * a, rel_tol=1e-6, abs_tol=1e-9) for f, a in zip(found, alone, strict=True)):
        what = f"beside another group {_shown(rewards)} give {_shown(found)}, alone {_shown(alone)}"
        yield f"{what}; a baseline is of its own group"


def group(rewards: Sequence[float], name: str = "t") -> Group:
    """One attempt for each reward."""
    task = Task(id=name, environment="a/b", prompt=(Message(role="user", content="?"),))
    turns = (Turn(role="prompt", token_ids=(1,)), Turn(role="assistant", token_ids=(2,)))
    members = tuple(Trajectory(task=task, attempt=i, turns=turns, reward=r) for i, r in enumerate(rewards))
    return Group(task=task, trajectories=members)


def values(advantage: Advantage, rewards: Sequence[float]) -> list[float]:
    """The advantages of one group. Raises ValueError where one is missing."""
    (done,) = advantage([group(rewards)])
    found = [t.advantage for t in done.trajectories]
    if len(found) != len(rewards) or None in found:
        raise ValueError(f"{len(rewards)} judged attempts got the advantages {_shown(found)}; each must get one")
    return [v for v in found if v is not None]


def _bare(group: Group) -> Group:
    """Without what an advantage may set."""
    members = (
        replace(t, advantage=None, turns=tuple(replace(turn, advantages=()) for turn in t.turns)) for t in group.trajectories
    )
    return replace(group, trajectories=tuple(members))


def _shown(numbers: Sequence[float | None]) -> str:
    return "[" + ", ".join("none" if x is None else f"{x:.6g}" for x in numbers[:8]) + (", ...]" if len(numbers) > 8 else "]")

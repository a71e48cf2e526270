"""The gate of advantages catches every kind of broken advantage."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from posttrain.advantages._base import Advantage
from posttrain.contracts.advantages import check
from posttrain.types import Group


@dataclass(frozen=True, kw_only=True)
class Sound(Advantage):
    """Reward minus the group's mean, exactly 0 for equal rewards; the broken ones differ from it in one thing."""

    def one(self, group: Group) -> Group:
        rewards = group.rewards
        mean = statistics.fmean(rewards) if rewards else 0.0
        given = {t.id: (t.reward or 0.0) - mean if group.mixed else 0.0 for t in group.trained}
        return replace(group, trajectories=tuple(replace(t, advantage=given.get(t.id)) for t in group.trajectories))

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        return [self.one(g) for g in groups]


class Whitened(Sound):
    """Divided by the largest of the whole batch, which is allowed."""

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        done = super().__call__(groups)
        size = max(abs(t.advantage or 0.0) for g in done for t in g.trajectories) or 1.0
        return [
            replace(g, trajectories=tuple(replace(t, advantage=t.advantage and t.advantage / size) for t in g.trajectories))
            for g in done
        ]


class ByArithmetic(Sound):
    """Equal rewards through floating point."""

    def one(self, group: Group) -> Group:
        total = 0.0
        for reward in group.rewards:
            total += reward
        mean = total / max(len(group.rewards), 1)
        return replace(
            group,
            trajectories=tuple(
                replace(t, advantage=(t.reward or 0.0) - mean if t in group.trained else None) for t in group.trajectories
            ),
        )


class Plain(Sound):
    """The reward itself, where rewards differ."""

    def one(self, group: Group) -> Group:
        return replace(
            group,
            trajectories=tuple(
                replace(t, advantage=(t.reward if group.mixed else 0.0) if t in group.trained else None)
                for t in group.trajectories
            ),
        )


class Normed(Sound):
    """Over a spread that may be too small to square."""

    def one(self, group: Group) -> Group:
        done, spread = super().one(group), statistics.pvariance(group.rewards) if group.rewards else 1.0
        if not group.mixed:
            return done
        return replace(
            done,
            trajectories=tuple(
                replace(t, advantage=t.advantage and t.advantage / (spread or float("nan"))) for t in done.trajectories
            ),
        )


class CountsFailures(Sound):
    """Our failures as zeros."""

    def one(self, group: Group) -> Group:
        rewards = [t.reward or 0.0 for t in group.trajectories]
        mean = statistics.fmean(rewards)
        given = [r - mean if len(set(rewards)) > 1 else 0.0 for r in rewards]
        return replace(group, trajectories=tuple(replace(t, advantage=a) for t, a in zip(group.trajectories, given, strict=True)))


class Sorts(Sound):
    """Attempts come back in another order."""

    def one(self, group: Group) -> Group:
        done = super().one(group)
        return replace(done, trajectories=tuple(sorted(done.trajectories, key=lambda t: t.advantage or 0.0)))


class OverTheBatch(Sound):
    """The baseline is the batch's."""

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        mean = statistics.fmean([r for g in groups for r in g.rewards])
        return [
            replace(g, trajectories=tuple(replace(t, advantage=(t.reward or 0.0) - mean) for t in g.trajectories)) for g in groups
        ]


class Remembers(Sound):
    """Other figures each time."""

    def one(self, group: Group) -> Group:
        CALLS.append(0)
        done = super().one(group)
        return replace(
            done,
            trajectories=tuple(replace(t, advantage=t.advantage and t.advantage * len(CALLS)) for t in done.trajectories),
        )


CALLS: list[int] = []


class Forgets(Sound):
    """The last attempt gets none."""

    def one(self, group: Group) -> Group:
        *rest, last = super().one(group).trajectories
        return replace(group, trajectories=(*rest, replace(last, advantage=None)))


@pytest.mark.parametrize("cls", [Sound, Whitened])
def test_a_sound_advantage_passes(cls: type[Advantage]) -> None:
    assert check(cls()) == []


@pytest.mark.parametrize(
    ("cls", "fault"),
    [
        (ByArithmetic, "not exactly 0"),
        (Plain, "do not sum to 0"),
        (Normed, "must be finite"),
        (CountsFailures, "only group.trained may get one"),
        (CountsFailures, "move the others' advantages"),
        (Sorts, "must come back as they were"),
        (Remembers, "the second time"),
        (OverTheBatch, "a baseline is of its own group"),
        (Forgets, "each must get one"),
    ],
)
def test_a_broken_advantage_is_caught(cls: type[Advantage], fault: str) -> None:
    said = check(cls())
    assert any(fault in x for x in said), said


def test_what_is_no_advantage_is_said() -> None:
    assert "inherits from posttrain.advantages._base.Advantage" in check(object())[0]

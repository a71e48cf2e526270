"""The gate every task pool passes: nothing held out is drawn, every draw has its own name, a restored pool goes on the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from posttrain.errors import PosttrainError, UsageError
from posttrain.pools._base import OpenPool, Pool
from posttrain.types import Group, Message, Task, Trajectory, Turn, Verdict

STEPS = 12
DRAWN = 9  # tasks a step
OF = 8  # attempts a group


class Numbers:
    """Tasks 0, 1, 2 ... of one environment, ``num`` of them or endless; its neighbours are far away.

    With ``repeats`` two tasks after one another have the same prompt.
    """

    def __init__(self, name: str = "toy/a", num: int | None = None, repeats: bool = False) -> None:
        self.name, self.num, self.repeats = name, num, repeats

    def task(self, n: int) -> Task:
        """Task number n."""
        said = n // 2 if self.repeats else n
        prompt = (Message(role="user", content=f"{self.name} {said}"),)
        return Task(id=f"{self.name}/{n}", environment=self.name, seed=n, prompt=prompt)

    def tasks(self) -> Iterator[Task]:
        """All of them, in order."""
        n = 0
        while self.num is None or n < self.num:
            yield self.task(n)
            n += 1

    def neighbours(self, task: Task, n: int) -> list[Task]:
        """New ones, the same each time."""
        return [self.task(1_000_000 + task.seed * 10 + i) for i in range(n)]


def group(task: Task, passes: int, of: int = OF, broken: int = 0) -> Group:
    """A group of which ``passes`` are right and ``broken`` failed on our side."""
    turns = (Turn(role="prompt", token_ids=(1,)),)
    members = []
    for i in range(of - broken):
        verdict = Verdict(status="ok" if i < passes else "wrong")
        members.append(Trajectory(task=task, attempt=i, turns=turns, verdict=verdict, reward=float(i < passes)))
    members += [Trajectory(task=task, attempt=of - 1 - i, turns=turns, outcome="infra_error") for i in range(broken)]
    return Group(task=task, trajectories=tuple(members))


def check(plugin: object) -> list[str]:
    """What is wrong with a task pool, one sentence each; empty when it passes."""
    if not callable(getattr(plugin, "open", None)):
        return ["it has no method open(environments, seed) -> OpenPool"]
    pool: Any = plugin
    parts: tuple[Callable[[Pool], Iterator[str]], ...] = (draws, repeats, restores, small_data, refuses)
    bad = []
    for part in parts:
        try:
            bad += list(part(pool))
        except Exception as fault:  # any exception is the finding here
            bad.append(f"{part.__name__.replace('_', ' ')}: it raised {type(fault).__name__}: {fault!s:.300}")
    return bad


def draws(pool: Pool) -> Iterator[str]:
    """As many tasks as asked for, none held out, each with a visit number that says how often it came before."""
    visits: dict[str, int] = {}
    live = _opened(pool)
    given: object = live
    if not isinstance(given, OpenPool):
        yield f"open() gives a {type(given).__name__}; the opened pool inherits from posttrain.pools._base.OpenPool"
    for _ in range(STEPS):
        drawn = live.next(DRAWN)
        if len(drawn) != DRAWN:
            yield f"next({DRAWN}) gives {len(drawn)} tasks"
            return
        for task, visit in drawn:
            if task.held_out:
                yield f"it draws {task.id}, which is held out for evaluation"
                return
            if visit != visits.get(task.id, 0):
                yield f"{task.id} comes with visit {visit}, {visits.get(task.id, 0)} came before; task and visit name a draw"
                return
            visits[task.id] = visit + 1
        _observe(live, drawn)


def repeats(pool: Pool) -> Iterator[str]:
    """A function of its seed and of what it observed."""
    first, second = _opened(pool), _opened(pool)
    if _live(first, STEPS) != _live(second, STEPS):
        yield "two pools with one seed and the same results draw different tasks; draw all randomness from the seed"


def restores(pool: Pool) -> Iterator[str]:
    """Its state is JSON, and a fresh pool that takes it goes on exactly as this one, groups under way among it."""
    live = _opened(pool)
    _live(live, STEPS)
    pending = live.next(5)
    state = live.state()
    try:
        stored = json.loads(json.dumps(state))
    except TypeError as fault:
        yield f"its state is not JSON: {fault}"
        return
    live.next(1)  # must not reach into what was stored
    other, again = _opened(pool), _opened(pool)
    other.restore(stored)
    again.restore(json.loads(json.dumps(stored)))
    if json.loads(json.dumps(other.state())) != json.loads(json.dumps(state)):
        yield "a restored pool has another state than the one it was given"
    again.next(1)
    for one in (live, again):
        _observe(one, pending)
    if _live(live, 2 * STEPS) != _live(again, 2 * STEPS):
        yield "a restored pool goes on with other tasks than the one that was saved"


def small_data(pool: Pool) -> Iterator[str]:
    """Finite data start over, and a group that failed on our side is taken in without harm."""
    live = pool.open([Numbers("toy/few", 20)], 0)
    number = sum(not t.held_out for t in Numbers("toy/few", 20).tasks())
    seen = set()
    for _ in range(4):
        drawn = live.next(number)
        seen |= {t.id for t, _ in drawn}
        for task, _ in drawn:
            live.observe(group(task, 0, broken=OF))
    if len(drawn) != number:
        yield f"of {number} training tasks it gives {len(drawn)} when asked for {number} again; finite data start over"
    if not seen:
        yield "it draws nothing from a small set"


def refuses(pool: Pool) -> Iterator[str]:
    """Data without a training task, and a state of other environments, are the user's to mend: UsageError."""
    state = _opened(pool).state()
    cases: dict[str, Callable[[], object]] = {
        "an environment without tasks": lambda: pool.open([Numbers("toy/none", 0)], 0).next(1),
        "the state of other environments": lambda: pool.open([Numbers("toy/other")], 0).restore(state),
    }
    for what, work in cases.items():
        try:
            work()
        except UsageError:
            continue
        except PosttrainError as fault:
            yield f"{what} gives {type(fault).__name__}; raise UsageError, which says what to do"
        else:
            yield f"{what} is accepted; raise UsageError, which says what to do"


def _opened(pool: Pool) -> OpenPool:
    return pool.open([Numbers("toy/a"), Numbers("toy/b", 40, repeats=True)], 3)


def _live(live: OpenPool, steps: int) -> list[tuple[str, int]]:
    """What is drawn over some steps, each observed."""
    out = []
    for _ in range(steps):
        drawn = live.next(DRAWN)
        _observe(live, drawn)
        out += [(task.id, visit) for task, visit in drawn]
    return out


def _observe(live: OpenPool, drawn: Sequence[tuple[Task, int]]) -> None:
    """Results that depend on the task and the visit: some solved, some mixed, some failed, some lost."""
    for task, visit in drawn:
        number = sum(task.id.encode()) + visit
        live.observe(group(task, number % (OF + 1), broken=OF if number % 7 == 0 else 0))

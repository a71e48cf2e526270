"""Admission: how many sandboxes may be alive, by cores, memory and processes, fair between families, in a bounded queue."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from posttrain.errors import DeadlineExceeded, InfraError, UsageError
from posttrain.sandboxes._base import Limits

LONGEST = 10_000  # of one family's queue

# Thousandths of cores, MiB, processes. Whole numbers: sums of fractions drift, and what is all free would not fit what needs all.
Amounts = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What all sandboxes together may hold: cores (shared ones count in parts), MiB of memory, processes."""

    cpus: float
    memory: int
    pids: int

    @classmethod
    def of_this_machine(cls, share: float = 0.5, oversubscribed: float = 4.0) -> Capacity:
        """``share`` of its memory; each core ``oversubscribed`` times, since most programs mostly wait."""
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(cpus=cores * oversubscribed, memory=int(pages * share) >> 20, pids=16_000)


@dataclass(slots=True)
class _Waiter:
    key: str
    number: int
    amounts: Amounts
    ready: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Leases:
    """Gives out parts of a capacity. Fair between keys (families): the next is of the key whose share is least, then the oldest.

    A key's share is the largest part of any one resource that it holds (dominant resource fairness, Ghodsi et al. 2011).
    """

    def __init__(self, capacity: Capacity, *, longest: int = LONGEST) -> None:
        self.capacity, self.longest = capacity, longest
        self._all = self._free = _amounts(capacity)
        self._held: defaultdict[str, Amounts] = defaultdict(lambda: (0, 0, 0))
        self._queues: defaultdict[str, deque[_Waiter]] = defaultdict(deque)  # of keys for which someone waits
        self._numbers = itertools.count()

    @contextlib.asynccontextmanager
    async def take(self, limits: Limits, *, key: str = "", deadline: float = 600.0) -> AsyncIterator[None]:
        """Waits for its turn and holds it as long as the block.

        Raises UsageError for what could never be admitted, InfraError where too many of the key wait already, DeadlineExceeded
        after ``deadline`` seconds, saying what is held.
        """
        self._check(limits, key)
        waiter = _Waiter(key, next(self._numbers), _amounts(limits))
        self._queues[key].append(waiter)
        self._serve()
        try:
            await asyncio.wait_for(asyncio.shield(waiter.ready), deadline)
        except (TimeoutError, asyncio.CancelledError) as error:
            if waiter.ready.done():
                self._move(waiter, -1)
            else:
                self._leave(waiter)
            self._serve()  # whoever stood behind it
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(f"admission of a sandbox for {key or 'a task'} ({self._said()})", deadline) from None
            raise
        try:
            yield
        finally:
            self._move(waiter, -1)
            self._serve()

    def status(self) -> Mapping[str, float]:
        """What is free, and how many wait."""
        cpus, memory, pids = self._free
        return {"cpus": cpus / 1000, "memory": memory, "pids": pids, "waiting": sum(map(len, self._queues.values()))}

    def _said(self) -> str:
        held = ", ".join(f"{self._share(key):.0%} by {key or 'others'}" for key in sorted(self._held, key=self._share)[:-4:-1])
        return f"held: {held or 'nothing'}; free: {', '.join(f'{k} {v:g}' for k, v in self.status().items())}"

    def _check(self, limits: Limits, key: str) -> None:
        for name in ("cpus", "memory", "pids"):
            if getattr(limits, name) > getattr(self.capacity, name):
                raise UsageError(
                    f"a sandbox that may use {name} = {getattr(limits, name)} can never be admitted: all together may use "
                    f"{getattr(self.capacity, name)}; lower the task's limit or raise the capacity"
                )
        if key in self._queues and len(self._queues[key]) >= self.longest:
            raise InfraError(
                f"{self.longest} sandboxes of {key or 'no family'} wait already, so no more are queued ({self._said()}); "
                "make fewer attempts at a time"
            )

    def _serve(self) -> None:
        """Admits as long as the next in line fits; it is never overtaken by a smaller one, or it could wait for ever."""
        while self._queues:
            waiter = min((queue[0] for queue in self._queues.values()), key=lambda w: (self._share(w.key), w.number))
            if any(asked > free for asked, free in zip(waiter.amounts, self._free, strict=True)):
                return
            self._leave(waiter)
            self._move(waiter, 1)
            waiter.ready.set_result(None)

    def _leave(self, waiter: _Waiter) -> None:
        self._queues[waiter.key].remove(waiter)
        if not self._queues[waiter.key]:
            del self._queues[waiter.key]

    def _move(self, waiter: _Waiter, sign: int) -> None:
        """To the key, or back."""
        (a, b, c), (x, y, z), (p, q, r) = self._free, self._held[waiter.key], (sign * amount for amount in waiter.amounts)
        self._free, self._held[waiter.key] = (a - p, b - q, c - r), (x + p, y + q, z + r)
        if not any(self._held[waiter.key]):
            del self._held[waiter.key]

    def _share(self, key: str) -> float:
        held = self._held.get(key, (0, 0, 0))
        return max(part / whole if whole else 0.0 for part, whole in zip(held, self._all, strict=True))


def _amounts(of: Capacity | Limits) -> Amounts:
    return round(of.cpus * 1000), of.memory, of.pids

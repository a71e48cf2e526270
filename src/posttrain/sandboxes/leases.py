"""Admission: how many sandboxes may be alive, by cores, memory and processes, in the order in which they were asked for."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from posttrain.errors import DeadlineExceeded, UsageError
from posttrain.sandboxes._base import Limits


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
    limits: Limits
    ready: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Leases:
    """Gives out parts of a capacity. Fair between keys (families): the key that holds least is served first, then by age."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self._cpus, self._memory, self._pids = capacity.cpus, capacity.memory, capacity.pids
        self._queue: deque[_Waiter] = deque()
        self._held: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def take(self, limits: Limits, *, key: str = "", deadline: float = 600.0) -> AsyncIterator[None]:
        """Waits for its turn and holds it as long as the block.

        Raises UsageError for what could never be admitted, DeadlineExceeded after ``deadline`` seconds, saying what is held.
        """
        self._check(limits)
        waiter = _Waiter(key, limits)
        self._queue.append(waiter)
        self._serve()
        try:
            await asyncio.wait_for(asyncio.shield(waiter.ready), deadline)
        except (TimeoutError, asyncio.CancelledError) as error:
            if waiter.ready.done():
                self._give_back(waiter)
            else:
                self._queue.remove(waiter)
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(f"admission of a sandbox for {key or 'a task'} ({self.status()})", deadline) from None
            raise
        try:
            yield
        finally:
            self._give_back(waiter)

    def status(self) -> Mapping[str, float]:
        """What is free, and how many wait."""
        return {"cpus": self._cpus, "memory": self._memory, "pids": self._pids, "waiting": len(self._queue)}

    def _check(self, limits: Limits) -> None:
        for name in ("cpus", "memory", "pids"):
            if getattr(limits, name) > getattr(self.capacity, name):
                raise UsageError(
                    f"a sandbox that may use {name} = {getattr(limits, name)} can never be admitted: all together may use "
                    f"{getattr(self.capacity, name)}; lower the task's limit or raise the capacity"
                )

    def _serve(self) -> None:
        """Admits as long as the next in line fits; it is never overtaken by a smaller one, or it could wait for ever."""
        while self._queue:
            least = min(self._held[w.key] for w in self._queue)
            waiter = next(w for w in self._queue if self._held[w.key] == least)
            limits = waiter.limits
            if limits.cpus > self._cpus or limits.memory > self._memory or limits.pids > self._pids:
                return
            self._queue.remove(waiter)
            self._move(waiter, -1)
            waiter.ready.set_result(None)

    def _give_back(self, waiter: _Waiter) -> None:
        self._move(waiter, 1)
        self._serve()

    def _move(self, waiter: _Waiter, sign: int) -> None:
        limits = waiter.limits
        self._cpus += sign * limits.cpus
        self._memory += sign * limits.memory
        self._pids += sign * limits.pids
        self._held[waiter.key] -= sign

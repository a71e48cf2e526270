"""The sandboxes that graders and environments of one process share: started at the first use, ended with the process.

They live on an event loop of their own, so that whoever asks - any loop, any thread - gets the same ones.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from posttrain.errors import SandboxLost
from posttrain.sandboxes._base import Host, Limits, Needs, Sandbox
from posttrain.sandboxes.leases import Capacity, Leases
from posttrain.sandboxes.namespaces import Namespaces

T = TypeVar("T")
TRIES = 3  # of one piece of work whose sandbox is lost


class _Shared:
    """One supervisor and one admission for all."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="shared sandboxes", daemon=True).start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise
        atexit.register(self.close)

    async def _open(self) -> None:
        self._opening = Namespaces().open()
        self._host: Host = await self._opening.__aenter__()
        self._leases = Leases(Capacity.of_this_machine())

    async def use(self, needs: Sequence[Needs], work: Callable[..., Awaitable[T]], key: str) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._use(needs, work, key), self._loop))

    async def _use(self, needs: Sequence[Needs], work: Callable[..., Awaitable[T]], key: str) -> T:
        async with self._leases.take(together(needs), key=key):
            for left in reversed(range(TRIES)):
                try:
                    async with contextlib.AsyncExitStack() as stack:
                        return await work(*[await stack.enter_async_context(self._one(n)) for n in needs])
                except SandboxLost:
                    if not left:
                        raise
        raise AssertionError

    @contextlib.asynccontextmanager
    async def _one(self, needs: Needs) -> AsyncIterator[Sandbox]:
        if not self._host.alive:
            with contextlib.suppress(SandboxLost):
                await self._opening.__aexit__(None, None, None)
            self._opening = Namespaces().open()
            self._host = await self._opening.__aenter__()
        box = await self._host.create(needs)
        try:
            yield box
        finally:
            with contextlib.suppress(SandboxLost):
                await box.destroy()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._opening.__aexit__(None, None, None), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)


_lock = threading.Lock()
_made: list[_Shared] = []


async def in_sandbox(needs: Needs, work: Callable[[Sandbox], Awaitable[T]], *, key: str = "") -> T:
    """``await work(sandbox)`` in a fresh sandbox, destroyed after; done again in a new one where the sandbox is lost.

    ``key`` names who asks, so that admission is fair between families. Raises SandboxUnavailable, SandboxLost (after three
    tries), DeadlineExceeded for an admission that does not come, and whatever ``work`` raises.
    """
    return await in_sandboxes((needs,), work, key=key)


async def in_sandboxes(needs: Sequence[Needs], work: Callable[..., Awaitable[T]], *, key: str = "") -> T:
    """The same with several sandboxes at once, admitted together: who holds one and waits for another would wait for ever."""
    if not _made:
        await asyncio.to_thread(_make)
    return await _made[0].use(needs, work, key)


def together(needs: Sequence[Needs]) -> Limits:
    """What several sandboxes hold at once."""
    limits = [n.limits for n in needs]
    return Limits(cpus=sum(x.cpus for x in limits), memory=sum(x.memory for x in limits), pids=sum(x.pids for x in limits))


def _make() -> None:
    with _lock:
        if not _made:
            _made.append(_Shared())


def forget() -> Any:
    """Ends the shared sandboxes; the next use starts new ones. After a fork, or to give memory back."""
    with _lock:
        while _made:
            _made.pop().close()

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

from posttrain.errors import LostAgain, SandboxLost, SandboxUnavailable
from posttrain.sandboxes._base import Host, Limits, Needs, Sandbox
from posttrain.sandboxes.leases import Capacity, Leases
from posttrain.sandboxes.namespaces import Namespaces
from posttrain.sandboxes.usage import present

T = TypeVar("T")
TRIES = 3  # of one piece of work whose sandbox is lost
BACKOFF = 0.1  # seconds before the second, doubling


class _Shared:
    """One supervisor and one admission for all."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shared sandboxes", daemon=True)
        self._thread.start()
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
        self._opens = asyncio.Lock()

    async def use(self, needs: Sequence[Needs], work: Callable[..., Awaitable[T]], key: str) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._use(needs, work, key), self._loop))

    async def _use(self, needs: Sequence[Needs], work: Callable[..., Awaitable[T]], key: str) -> T:
        usage = present()
        for retry in range(TRIES):
            try:
                async with contextlib.AsyncExitStack() as stack:  # a lease for each try: who waits to try again holds nothing
                    with usage.timed("admission"):
                        await stack.enter_async_context(self._leases.take(together(needs), key=key))
                    with usage.timed("create"):
                        boxes = [await stack.enter_async_context(self._one(n)) for n in needs]
                    with usage.timed("sandboxed"):
                        return await work(*boxes)
            except SandboxLost as error:
                usage.lost.append(str(error))
            if retry + 1 < TRIES:
                await asyncio.sleep(BACKOFF * 2**retry)
        raise LostAgain(f"{TRIES} sandboxes of {key or 'a task'} were lost, one after the other; the last: {usage.lost[-1]}")

    @contextlib.asynccontextmanager
    async def _one(self, needs: Needs) -> AsyncIterator[Sandbox]:
        host = await self._living()
        box = await host.create(needs)
        try:
            yield box
        finally:
            with contextlib.suppress(SandboxLost):
                await box.destroy()

    async def _living(self) -> Host:
        """The host, a new one where its supervisor died; made once, though all who lost theirs ask at once."""
        async with self._opens:
            if not self._host.alive:
                with contextlib.suppress(SandboxLost):
                    await self._opening.__aexit__(None, None, None)
                self._opening = Namespaces().open()
                try:
                    self._host = await self._opening.__aenter__()
                except SandboxUnavailable as error:  # it was there before, so this is a loss, and tried again
                    raise SandboxLost(str(error)) from error
            return self._host

    def close(self) -> None:
        atexit.unregister(self.close)  # a loop that has stopped would let the end of the process wait
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._opening.__aexit__(None, None, None), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        if not self._thread.is_alive():
            self._loop.close()


_lock = threading.Lock()
_made: list[_Shared] = []


async def in_sandbox(needs: Needs, work: Callable[[Sandbox], Awaitable[T]], *, key: str = "") -> T:
    """``await work(sandbox)`` in a fresh sandbox, destroyed after; done again in a new one where the sandbox is lost.

    ``work`` may so run up to three times, each time from the beginning: what it does outside the sandbox must bear that.
    ``key`` names who asks, so that admission is fair between families. Raises SandboxUnavailable, LostAgain (after three
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

"""Drains a program's output as it comes, keeps the first bytes of it, and says when it is too much."""

from __future__ import annotations

import asyncio
import os

PART = 1 << 16


class Drain:
    """``inner``: the ends that the program gets, standard output, error and as many private ones as asked for.

    ``kept``: what came, by stream, ``limit`` bytes in all. ``flooded`` is set when there was more, ``done`` at the end of all.
    """

    def __init__(self, limit: int, streams: int) -> None:
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(streams)]
        self.inner = [write for _, write in pipes]
        self._open = {read for read, _ in pipes}
        self._parts: dict[int, list[bytes]] = {read: [] for read, _ in pipes}
        self._left = limit
        self.flooded, self.done = asyncio.Event(), asyncio.Event()
        self._news: asyncio.Queue[bytes] = asyncio.Queue()  # bounded by ``limit``
        for fd in self._open:
            os.set_blocking(fd, False)
            asyncio.get_running_loop().add_reader(fd, self._read, fd)

    @property
    def kept(self) -> list[bytes]:
        return [b"".join(parts) for parts in self._parts.values()]

    def _read(self, fd: int) -> None:
        try:
            part = os.read(fd, PART)
        except BlockingIOError:
            return
        if not part:
            self._end(fd)
            return
        if len(part) > self._left:
            self.flooded.set()
        if not self._left:
            return
        self._parts[fd].append(part[: self._left])
        self._news.put_nowait(part[: self._left])
        self._left -= min(len(part), self._left)

    def _end(self, fd: int) -> None:
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
        self._open.discard(fd)
        if not self._open:
            self.done.set()
            self._news.put_nowait(b"")

    async def next(self) -> bytes:
        """The next part of any stream, empty at the end of all."""
        return await self._news.get()

    def close_inner(self) -> None:
        """Ours of the program's ends; the program has its own."""
        for fd in self.inner:
            os.close(fd)
        self.inner = []

    def close(self) -> None:
        for fd in list(self._open):
            self._end(fd)
        self.close_inner()

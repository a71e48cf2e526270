"""One asynchronous connection to a process inside: numbered orders out, answers back, descriptors along."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from typing import Any

from posttrain.errors import SandboxLost, UsageError
from posttrain.sandboxes.namespaces.inside import wire


class Link:
    """Raises SandboxLost in every wait once the other side is gone."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        sock.setblocking(False)
        self._sock, self.name = sock, name
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0
        self._unsent: deque[tuple[dict[str, Any], tuple[int, ...]]] = deque()  # with copies of fds
        self.first: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.lost = False
        asyncio.get_running_loop().add_reader(sock.fileno(), self._read)

    def order(self, do: str, fds: tuple[int, ...] = (), **rest: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Sends one, or keeps it until the other side has read what it was sent; its number, and the answer to come."""
        self._count += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self.lost:
            raise SandboxLost(f"{self.name} is gone")
        message = {"id": self._count, "do": do, **rest}
        if (size := len(wire.packed(message))) > wire.LARGEST:
            raise UsageError(
                f"arguments and environment of {size} bytes are too many, {wire.LARGEST} fit; "
                "hand a long text over as stdin or a file"
            )
        self._waiting[self._count] = future
        try:
            if self._unsent:
                raise BlockingIOError
            wire.send(self._sock, message, fds)
        except BlockingIOError:
            if not self._unsent:
                asyncio.get_running_loop().add_writer(self._sock.fileno(), self._send)
            self._unsent.append((message, tuple(os.dup(fd) for fd in fds)))
        except OSError as error:
            del self._waiting[self._count]
            raise SandboxLost(f"{self.name} takes no orders any more ({error.strerror})") from error
        return self._count, future

    def _send(self) -> None:
        """What waited, in its order, as far as the socket takes it."""
        try:
            while self._unsent:
                wire.send(self._sock, *self._unsent[0])
                _close(self._unsent.popleft()[1])
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        asyncio.get_running_loop().remove_writer(self._sock.fileno())

    async def ask(self, do: str, deadline: float, fds: tuple[int, ...] = (), **rest: Any) -> dict[str, Any]:
        """One order and its answer. Raises SandboxLost past ``deadline`` seconds too: what does not answer is not relied on."""
        number, future = self.order(do, fds, **rest)
        try:
            answer = await asyncio.wait_for(future, deadline)
        except TimeoutError:
            self.close()  # or everyone would wait as long for the next answer, and nobody would start another
            raise SandboxLost(f"{self.name} did not answer {do!r} within {deadline:g} s") from None
        finally:
            self._waiting.pop(number, None)
        if "failed" in answer:
            raise SandboxLost(f"{self.name}, {do}: {answer['failed']}")
        return answer

    def _read(self) -> None:
        try:
            received = wire.receive(self._sock)
        except BlockingIOError:
            return
        except OSError:
            received = None
        if received is None:
            self.close()
            return
        message = received[0]
        if "id" not in message:
            if not self.first.done():
                self.first.set_result(message)
            return
        future = self._waiting.pop(message["id"], None)
        if future is not None and not future.done():
            future.set_result(message)

    def close(self) -> None:
        """From our side or theirs; every wait ends."""
        if self.lost:
            return
        self.lost = True
        asyncio.get_running_loop().remove_reader(self._sock.fileno())
        asyncio.get_running_loop().remove_writer(self._sock.fileno())
        self._sock.close()
        while self._unsent:
            _close(self._unsent.popleft()[1])
        for future in (self.first, *self._waiting.values()):
            if not future.done():
                future.set_exception(SandboxLost(f"{self.name} is gone"))
                future.exception()  # whoever waits is told; nobody need be waiting
        self._waiting.clear()


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)

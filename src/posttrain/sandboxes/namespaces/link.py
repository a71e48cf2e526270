"""One asynchronous connection to a process inside: numbered orders out, answers back, descriptors along."""

from __future__ import annotations

import asyncio
import socket
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
        self.first: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.lost = False
        asyncio.get_running_loop().add_reader(sock.fileno(), self._read)

    def order(self, do: str, fds: tuple[int, ...] = (), **rest: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Sends one; its number, and the answer to come."""
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
            wire.send(self._sock, message, fds)
        except OSError as error:
            del self._waiting[self._count]
            raise SandboxLost(f"{self.name} takes no orders any more ({error.strerror})") from error
        return self._count, future

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
        self._sock.close()
        for future in (self.first, *self._waiting.values()):
            if not future.done():
                future.set_exception(SandboxLost(f"{self.name} is gone"))
                future.exception()  # whoever waits is told; nobody need be waiting
        self._waiting.clear()

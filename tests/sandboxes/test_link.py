"""The connection to a process inside, where that process reads more slowly than orders come."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from posttrain.errors import SandboxLost
from posttrain.sandboxes.namespaces.inside import wire
from posttrain.sandboxes.namespaces.link import Link

MANY = 2000


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def test_orders_that_the_socket_does_not_take_yet_are_sent_later() -> None:
    """Hundreds of sandboxes that are ended at once fill its buffer; a full buffer is not a lost supervisor."""

    async def main() -> list[int]:
        ours, theirs = pair()
        link = Link(ours, "it")
        read, write = os.pipe()
        orders = [link.order("echo", (write,) if n == MANY - 1 else (), text="x" * 100) for n in range(MANY)]
        os.close(write)  # as callers do, once they have ordered

        def inside() -> list[int]:
            seen = []
            for _ in range(MANY):
                received = wire.receive(theirs)
                assert received is not None
                seen.append(received[0]["id"])
                for fd in received[1]:
                    os.write(fd, b"arrived")
                    os.close(fd)
                wire.send(theirs, {"id": received[0]["id"]})
            return seen

        assert link._unsent, "the socket took everything: the test shows nothing"
        seen = await asyncio.wait_for(asyncio.to_thread(inside), 20)
        answers = await asyncio.wait_for(asyncio.gather(*(future for _, future in orders)), 20)
        assert [answer["id"] for answer in answers] == seen
        assert os.read(read, 100) == b"arrived"
        assert os.read(read, 100) == b"", "the copy of the descriptor was not closed"
        os.close(read)
        assert not link._unsent
        link.close()
        theirs.close()
        return seen

    assert asyncio.run(main()) == list(range(1, MANY + 1))


def test_what_was_not_sent_is_lost_with_the_other_side() -> None:
    async def main() -> None:
        ours, theirs = pair()
        link = Link(ours, "it")
        futures = [link.order("echo", text="x" * 100)[1] for _ in range(MANY)]
        theirs.close()
        with pytest.raises(SandboxLost):
            await asyncio.wait_for(futures[-1], 20)
        assert link.lost and not link._unsent

    asyncio.run(main())


def test_a_deadline_holds_for_what_was_not_sent() -> None:
    async def main() -> None:
        ours, theirs = pair()
        link = Link(ours, "it")
        for _ in range(MANY):
            link.order("echo", text="x" * 100)
        with pytest.raises(SandboxLost, match="did not answer 'echo' within"):
            await link.ask("echo", 0.2)
        theirs.close()

    asyncio.run(main())

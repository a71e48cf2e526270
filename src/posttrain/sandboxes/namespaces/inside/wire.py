"""Messages between the controller, the supervisor and each sandbox's pid 1: one JSON object a packet, with descriptors."""

from __future__ import annotations

import array
import json
import socket
from typing import Any

LARGEST = 128 * 1024  # of one packet, in bytes; what is larger travels as a descriptor
MOST_DESCRIPTORS = 8


def send(to: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """One packet; the descriptors stay open here."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []
    to.sendmsg([packed(message)], rights)


def packed(message: dict[str, Any]) -> bytes:
    """The packet's bytes; at most ``LARGEST`` arrive whole."""
    return json.dumps(message).encode()


def receive(source: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message with its descriptors, which are now ours to close; None when the other side is gone."""
    room = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)
    data, ancillary, _, _ = source.recvmsg(LARGEST, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return (json.loads(data), list(fds)) if data else None

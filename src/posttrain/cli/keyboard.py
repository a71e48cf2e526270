"""Lines that a person types, read so that Ctrl-C ends the wait for the next one."""

from __future__ import annotations

import select
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

PROMPT = "> "


def lines() -> Iterator[str]:
    """Lines of standard input until it ends; with a prompt, on standard error, in a terminal.

    The chat reads them in a thread, which Ctrl-C does not reach: a flag does, or the process would wait for Enter to leave.
    """
    if not sys.stdin.isatty():
        return iter(sys.stdin)
    left = threading.Event()

    def leave(number: int, frame: FrameType | None) -> None:
        left.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, leave)
    return _typed(left)


def _typed(left: threading.Event) -> Iterator[str]:
    while not left.is_set():
        print(PROMPT, end="", file=sys.stderr, flush=True)
        while not left.is_set() and not select.select([sys.stdin], [], [], 0.2)[0]:
            pass
        line = "" if left.is_set() else sys.stdin.readline()
        if not line:
            return
        yield line

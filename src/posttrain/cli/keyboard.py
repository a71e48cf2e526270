"""Lines that a person types, read so that Ctrl-C ends the wait for the next one."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator

PROMPT = "> "


def lines() -> Iterator[str]:
    """Lines of standard input until it ends; with a prompt, on standard error, in a terminal.

    The chat reads them in a thread, which Ctrl-C does not reach, and a signal that arrives just before the main thread waits
    does not wake it either. So the signal writes to a pipe that the reading thread watches, and its end wakes the main thread.
    """
    if not sys.stdin.isatty():
        return iter(sys.stdin)
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    return _typed(reads)


def _typed(signals: int) -> Iterator[str]:
    while True:
        print(PROMPT, end="", file=sys.stderr, flush=True)
        ready: list[object] = []
        while sys.stdin not in ready:
            ready = select.select([sys.stdin, signals], [], [])[0]
            if signals in ready and signal.SIGINT in os.read(signals, 64):
                return
        line = sys.stdin.readline()
        if not line:
            return
        yield line

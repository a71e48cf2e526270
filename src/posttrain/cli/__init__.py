"""The command line: each command reads its arguments, calls one function of the house, and prints what it returns.

Whatever goes wrong ends in ``boundary.guarded``, the one place that turns errors into messages and exit codes.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    """Ends a run as Ctrl-C does: an event loop's own handler cancels its main task, whatever else was running just then."""
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(number, frame)
    else:
        raise KeyboardInterrupt


def _listen() -> None:
    """Lets a polite kill end a run as Ctrl-C does, with its resume line, also in the background, where Ctrl-C is ignored.

    There it stays ignored, by blocking: an event loop takes Ctrl-C's handler over only where nobody else has done so.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _end)


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point ``posttrain``: never returns, exits with a code of the table in ``errors``."""
    from posttrain.cli.boundary import guarded

    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is threading.main_thread():
        _listen()
    try:
        sys.exit(guarded(list(sys.argv[1:] if argv is None else argv)))
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)

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
    """Ends a run as Ctrl-C does, also one that was started in the background and so ignores Ctrl-C itself."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)
    else:
        raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point ``posttrain``: never returns, exits with a code of the table in ``errors``."""
    from posttrain.cli.boundary import guarded

    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is threading.main_thread():  # a polite kill ends a run as Ctrl-C does, with its resume line
        signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(guarded(list(sys.argv[1:] if argv is None else argv)))
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)

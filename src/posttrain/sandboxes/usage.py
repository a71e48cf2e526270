"""What a piece of work spent on sandboxes, for the record of whoever asked: seconds by stage, and the sandboxes it lost.

It travels with the work's context, so that verifiers and sessions need not pass it on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(slots=True)
class Usage:
    """``timings``: ``admission`` (waiting for a lease), ``create``, ``sandboxed`` (the work in it); ``lost``: why, one each."""

    timings: dict[str, float] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds to the seconds of a stage."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.timings[stage] = self.timings.get(stage, 0.0) + time.perf_counter() - began


_present: ContextVar[Usage | None] = ContextVar("usage", default=None)


@contextlib.contextmanager
def recorded() -> Iterator[Usage]:
    """All that the block spends, whatever thread or loop the sandboxes live on."""
    usage = Usage()
    token = _present.set(usage)
    try:
        yield usage
    finally:
        _present.reset(token)


def present() -> Usage:
    """Where to write; nobody reads it where nothing is recorded."""
    return _present.get() or Usage()

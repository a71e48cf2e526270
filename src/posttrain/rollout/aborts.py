"""Ends attempts that are under way: one, a group, or all. The run itself ends by cancelling the coroutine, as Ctrl-C does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from posttrain.errors import InfraError

T = TypeVar("T")


class Aborted(InfraError):
    """Ended on request: not retried, never a reward."""


class Aborts:
    """Given to ``rollout`` or ``run_group``. Call it on their event loop."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[Any]] = {}
        self._ended: set[str] = set()

    def abort(self, name: str = "") -> int:
        """``"TASK#VISIT.ATTEMPT"`` one attempt, ``"TASK#VISIT"`` its group, "" all; how many were ended.

        Each stays in its group as an ``infra_error`` that was aborted; its sandboxes die and the engine lets it go.
        """
        ended = [own for own in self._under_way if not name or own == name or own.startswith(name + ".")]
        for own in set(ended) - self._ended:
            self._ended.add(own)
            self._under_way[own].cancel()
        return len(ended)

    async def until(self, name: str, making: Coroutine[Any, Any, T]) -> T:
        """Awaits ``making``. Raises Aborted when ``abort`` named it."""
        task = asyncio.current_task()
        assert task is not None
        self._under_way[name] = task
        try:
            return await making
        except asyncio.CancelledError:
            if name not in self._ended or task.uncancel():  # what is left was asked for by whoever cancels the rollout
                raise
            raise Aborted(f"attempt {name} was aborted") from None
        finally:
            self._under_way.pop(name, None)
            self._ended.discard(name)

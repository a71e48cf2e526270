"""Every wait of a rollout has a name and a deadline. A wait that ends by its deadline is our failure, never a reward."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from posttrain.errors import DeadlineExceeded, InfraError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Wall-clock seconds after which an item counts as stuck: it is named, dispatched again, and counted.

    They never decide a reward (budgets of tokens, turns and tool calls do), so they are generous.
    """

    sample: float = 600.0  # one turn, waiting for a free slot included
    step: float = 60.0  # one answer of a session, or its start
    judge: float = 300.0  # one verdict, waiting for a free worker included
    attempt: float = 1800.0  # a whole attempt


DEFAULT = Deadlines()


async def within(what: str, seconds: float, awaitable: Awaitable[T]) -> T:
    """Awaits under a deadline. Raises ``DeadlineExceeded`` naming ``what``; a time-out from inside becomes ``InfraError``."""
    try:
        async with asyncio.timeout(seconds) as scope:
            return await awaitable
    except TimeoutError as error:
        if scope.expired():
            raise DeadlineExceeded(what, seconds) from None
        raise InfraError(f"{what} timed out: {error}") from error

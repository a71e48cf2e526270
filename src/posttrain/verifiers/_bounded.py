"""A check in a killable worker, and whose fault it is when the check never ends."""

from __future__ import annotations

from typing import Any

from posttrain.errors import DeadlineExceeded, InfraError, WorkerLost


class Stalled(Exception):
    """The policy's answer stalled or killed the check, although the reference answer passes in time: that is ``wrong``."""


async def judge_in_worker(target: str, answer: tuple[Any, ...], reference: tuple[Any, ...], *, deadline: float) -> Any:
    """``target(*answer)`` in a worker, within ``deadline`` seconds.

    Raises ``Stalled`` when the answer is to blame, and ``InfraError`` when ``target(*reference)`` does not pass either.
    """
    from posttrain.processes import shared

    try:
        return await shared().call(target, *answer, deadline=deadline)
    except (DeadlineExceeded, WorkerLost) as e:
        try:
            await shared().call(target, *reference, deadline=deadline)
        except (DeadlineExceeded, WorkerLost) as own:
            raise InfraError(f"{target} fails on the reference answer as well ({own}); raise the verifier's deadline") from e
        raise Stalled(str(e)) from e

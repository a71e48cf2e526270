"""The verifier's seam: a program that judges an outcome, always within its deadline."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from posttrain.types import Trajectory, Verdict

MAX_ANSWER_CHARS = 1_000_000  # of all assistant turns; a longer attempt is malformed before any parser sees it


@runtime_checkable
class Verifier(Protocol):
    """Sees texts, tool calls and artefacts; judges in [0, 1] where it belongs to a family.

    Never evaluates model text. What the policy did wrong is ``wrong`` or ``malformed``; what broke on our side raises
    ``InfraError`` or gives ``unverifiable``. ``feedback`` never reveals the answer.
    """

    async def judge(self, trajectory: Trajectory) -> Verdict: ...


def too_long(trajectory: Trajectory, verifier: str) -> Verdict | None:
    """The verdict on an attempt that says absurdly much, None for an ordinary one."""
    n = sum(len(turn.text) for turn in trajectory.turns if turn.role == "assistant")
    if n <= MAX_ANSWER_CHARS:
        return None
    return Verdict(
        status="malformed",
        evidence={"characters": n},
        feedback=f"The answer is longer than {MAX_ANSWER_CHARS:,} characters.",
        verifier=verifier,
    )

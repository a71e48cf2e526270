"""Constraints on the whole reply, all of which must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from posttrain.types import Trajectory, Verdict
from posttrain.verifiers._base import too_long
from posttrain.verifiers._constraints import CHECKS, words_of

MAX_CHARS = 20_000


@dataclass(frozen=True)
class Constraints:
    """``task.answer`` is a list of ``{"kind": "num_words", "value": 4}``; kinds are the keys of ``_constraints.CHECKS``.

    The whole reply is judged, not a part of it; each constraint is a part of the verdict. ``partial`` is the reward (below 1)
    of a reply that keeps all constraints but one, status ``wrong``.
    """

    partial: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.partial < 1:
            raise ValueError(f"partial is {self.partial}; it is the reward of a wrong answer, so at least 0 and below 1")

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """``ok`` 1.0 when all hold, ``wrong`` otherwise, ``malformed`` without a word; unknown constraints: ``unverifiable``."""
        wanted = trajectory.task.answer
        if not _known(wanted):
            return Verdict(status="unverifiable", evidence={"gold": repr(wanted)[:200]}, verifier="constraints")
        if long := too_long(trajectory, "constraints"):
            return long
        text = trajectory.final_text.strip()
        if len(text) > MAX_CHARS:
            feedback = f"The reply is longer than {MAX_CHARS:,} characters."
            return Verdict(status="malformed", parts={"format": 0.0}, feedback=feedback, verifier="constraints")
        words = words_of(text)
        if not words:
            return Verdict(status="malformed", parts={"format": 0.0}, feedback="The reply has no words.", verifier="constraints")
        held = [CHECKS[c["kind"]](text, words, c.get("value")) for c in wanted]
        broken = [c for c, holds in zip(wanted, held, strict=True) if not holds]
        parts = {"format": 1.0} | {f"{i}_{c['kind']}": float(h) for i, (c, h) in enumerate(zip(wanted, held, strict=True))}
        reward = 1.0 if not broken else self.partial if len(broken) == 1 and len(wanted) > 1 else 0.0
        return Verdict(
            status="wrong" if broken else "ok",
            reward=reward,
            parts=parts,
            evidence={"broken": broken},
            feedback="Not kept: " + ", ".join(c["kind"].replace("_", " ") for c in broken) + "." if broken else "",
            verifier="constraints",
        )


def _known(wanted: object) -> bool:
    """Whether the gold is a list of constraints that there are, with values of the right kind."""
    if not isinstance(wanted, list | tuple) or not wanted:
        return False
    return all(isinstance(c, Mapping) and isinstance(kind := c.get("kind"), str) and kind in CHECKS for c in wanted)

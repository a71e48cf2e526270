"""A text or an ordered list of texts, compared exactly after harmless normalisation."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from posttrain.types import Trajectory, Verdict
from posttrain.verifiers._answer import NoAnswer, find_answer, unwrap
from posttrain.verifiers._base import too_long


@dataclass(frozen=True)
class Exact:
    """Judges what follows the last ``Answer:`` (or the last ``\\boxed{}``).

    ``task.answer`` is a string, or a list whose items the answer gives in order, separated by commas. Never a substring test.
    ``case_sensitive``: capitals count. ``partial``: the reward (below 1) of a list with all the right items at its share of
    right places, status ``wrong``; 0 gives none.
    """

    case_sensitive: bool = False
    partial: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.partial < 1:
            raise ValueError(f"partial is {self.partial}; it is the reward of a wrong answer, so at least 0 and below 1")

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """``ok`` 1.0, ``wrong`` below 1, ``malformed`` 0.0 without a marked answer; an empty or odd gold: ``unverifiable``."""
        gold = trajectory.task.answer
        many = isinstance(gold, list | tuple)
        wanted = [self.normal(str(item)) for item in (gold if many else [gold])]
        if gold is None or not wanted or not all(wanted):
            return Verdict(status="unverifiable", evidence={"gold": repr(gold)[:200]}, verifier="exact")
        if long := too_long(trajectory, "exact"):
            return long
        try:
            answer = find_answer(trajectory.final_text)
        except NoAnswer as fault:
            return Verdict(status="malformed", parts={"format": 0.0, "value": 0.0}, feedback=str(fault), verifier="exact")
        got = [self.normal(item) for item in answer.split(",")] if many else [self.normal(answer)]
        right = got == wanted
        share = 0.0
        if many and sorted(got) == sorted(wanted):
            share = sum(a == b for a, b in zip(got, wanted, strict=True)) / len(wanted)
        return Verdict(
            status="ok" if right else "wrong",
            reward=1.0 if right else self.partial * share,
            parts={"format": 1.0, "value": float(right)} | ({"places": share} if many else {}),
            evidence={"read": answer[:200]},
            feedback="" if right else ("The items or their order are not right." if many else "The answer is not right."),
            verifier="exact",
        )

    def normal(self, text: str) -> str:
        """NFC, dress and surplus space stripped, case folded unless it counts."""
        plain = " ".join(unwrap(unicodedata.normalize("NFC", text)).strip("\"'“”‘’ ").split())
        return plain if self.case_sensitive else plain.casefold()

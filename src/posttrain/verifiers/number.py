"""One number, compared exactly: no tolerance, no evaluation, no worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posttrain.types import Trajectory, Verdict
from posttrain.verifiers._answer import NoAnswer, find_answer, find_last, unwrap
from posttrain.verifiers._base import too_long
from posttrain.verifiers._numbers import NotANumber, Quantity, parse_number, same, show


@dataclass(frozen=True)
class Number:
    """Judges the number after the last ``Answer:`` (or in the last ``\\boxed{}``).

    ``task.answer`` is a number, its text (``"3/4"``, ``"1,250"``, or steps ending in ``#### 18``), or
    ``{"value": "90", "unit": "minutes"}``; a unit may be left out, a different one is wrong. ``marked=False`` also takes
    the last number of the last line when there is no mark, for data whose prompts ask for none.
    """

    marked: bool = True

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """``ok`` 1.0, ``wrong`` 0.0 for another number, ``malformed`` 0.0 without one, ``unverifiable`` for a gold without."""
        try:
            gold = gold_number(trajectory.task.answer)
        except NotANumber as fault:
            return Verdict(status="unverifiable", evidence={"gold": str(fault)}, verifier="number")
        if long := too_long(trajectory, "number"):
            return long
        text = trajectory.final_text
        try:
            answer = self._find(text)
            got = parse_number(answer)
        except NoAnswer as fault:
            return Verdict(status="malformed", parts={"format": 0.0, "value": 0.0}, feedback=str(fault), verifier="number")
        except NotANumber as fault:
            feedback = f"The answer could not be read as a number: {fault}."
            return Verdict(status="malformed", parts={"format": 0.0, "value": 0.0}, feedback=feedback, verifier="number")
        right = same(gold, got)
        return Verdict(
            status="ok" if right else "wrong",
            reward=float(right),
            parts={"format": 1.0, "value": float(right)},
            evidence={"read": show(got.value), "unit": got.unit},
            feedback="" if right else "The number is not right.",
            verifier="number",
        )

    def _find(self, text: str) -> str:
        """The marked answer, or the last number of the last line."""
        try:
            return find_answer(text)
        except NoAnswer:
            if self.marked:
                raise
        return find_last(text)


def gold_number(answer: Any) -> Quantity:
    """The gold as a quantity. Raises ``NotANumber``."""
    if isinstance(answer, Mapping):
        value = parse_number(str(answer.get("value", "")))
        unit = str(answer.get("unit", "")).lower()
        known = parse_number(f"1 {unit}").unit if unit else ""
        return Quantity(value.value, known, value.percent)
    if isinstance(answer, bool) or answer is None:
        raise NotANumber(f"the gold is {answer!r}")
    text = str(answer)
    return parse_number(unwrap(text.rsplit("####", 1)[-1]))

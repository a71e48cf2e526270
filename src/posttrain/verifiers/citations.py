"""An answer with its evidence: ``Answer: tea [1]``; the value and the cited sentences must both be right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from posttrain.types import Trajectory, Verdict
from posttrain.verifiers._answer import NoAnswer, find_answer
from posttrain.verifiers._base import too_long

NOT_STATED = "not stated"
_TAIL = re.compile(r"(?:\[[0-9]{1,4}(?: ?, ?[0-9]{1,4}){0,30}\][ ,]{0,3}){1,30}\Z")
_ID = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True)
class Citations:
    """``task.answer`` is ``{"value": "tea", "ids": [1]}``; value None: the document does not say, and the answer must say so.

    The ids must be exactly those that carry the answer: one missing or one too many and the whole answer earns nothing.
    ``ordered``: the ids must come in the order of the answer's ids, as the links of a chain do.
    """

    ordered: bool = False

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """Parts: format, value, evidence. Malformed: no ``Answer:``, or a value without a citation."""
        if verdict := too_long(trajectory, "citations"):
            return verdict
        gold = trajectory.task.answer
        if not isinstance(gold, dict) or "value" not in gold or (gold["value"] is not None and not gold.get("ids")):
            return Verdict(status="unverifiable", evidence={"gold": repr(gold)[:200]}, verifier="citations")
        try:
            value, ids = read_cited(find_answer(trajectory.final_text))
        except NoAnswer as e:
            return Verdict(status="malformed", parts={"format": 0.0}, feedback=str(e), verifier="citations")
        if gold["value"] is None:
            right_value, right_ids = value is None, not ids
        else:
            wanted = [int(i) for i in gold["ids"]]
            right_value = value is not None and value == plain(str(gold["value"]))
            right_ids = ids == wanted if self.ordered else sorted(ids) == sorted(wanted)
        right = right_value and right_ids
        feedback = ""
        if not right:
            feedback = "The cited sentences do not carry this answer." if right_value else "The document does not say this."
        evidence: dict[str, Any] = {"value": value if value is None else value[:200], "ids": ids}
        return Verdict(
            status="ok" if right else "wrong",
            reward=float(right),
            parts={"format": 1.0, "value": float(right_value), "evidence": float(right_ids)},
            evidence=evidence,
            feedback=feedback,
            verifier="citations",
        )


def read_cited(answer: str) -> tuple[str | None, list[int]]:
    """``read_cited("tea [1]")`` -> ("tea", [1]); "not stated" -> (None, []). Raises ``NoAnswer`` on anything else."""
    match = _TAIL.search(answer)
    value = plain(answer[: match.start()] if match else answer)
    ids = [int(i) for i in _ID.findall(match.group())] if match else []
    if value == NOT_STATED:
        return None, ids
    if not value:
        raise NoAnswer("There is no value before the citation.")
    if not ids:
        raise NoAnswer("The answer cites no sentence; end it with the sentence's number in brackets.")
    return value, ids


def plain(text: str) -> str:
    """Case folded, white space collapsed, quotes and closing punctuation stripped."""
    return " ".join(text.casefold().split()).strip("\"'“”‘’.,;: ")

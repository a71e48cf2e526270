"""A mathematical answer, compared by meaning: own parser, exact arithmetic, and sympy in a killable worker for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from posttrain.types import Trajectory, Verdict
from posttrain.verifiers._answer import NoAnswer, find_answer, find_last, unwrap
from posttrain.verifiers._base import too_long
from posttrain.verifiers._bounded import Stalled, judge_in_worker
from posttrain.verifiers._math_exact import Exact, TooLarge, is_expanded
from posttrain.verifiers._math_lexer import NotMath
from posttrain.verifiers._math_parser import Node, parse
from posttrain.verifiers._numbers import NotANumber, Quantity, parse_number, same

WORKER = "posttrain.verifiers._math_worker:compare"


@dataclass(frozen=True)
class Math:
    """Judges what follows the last ``Answer:`` (or the last ``\\boxed{}``) against ``task.answer``, both plain text or LaTeX.

    Numbers and polynomials are compared exactly in this process, within a counted budget past which an answer is wrong; roots,
    functions, equations, intervals and sets go as syntax trees to sympy in a worker, for at most ``deadline`` seconds. The
    order of a list counts, that of a set does not.
    ``form="expanded"`` asks for a sum of monomials, no two alike, so that copying the question earns nothing.
    ``marked=False`` also takes the last formula or number of the last line when there is no mark.
    """

    form: Literal["any", "expanded"] = "any"
    marked: bool = True
    deadline: float = 3.0

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """``ok`` 1.0, ``wrong`` 0.0, ``malformed`` 0.0 for what cannot be read; a gold that cannot: ``unverifiable``."""
        gold_text = unwrap(str(trajectory.task.answer).rsplit("####", 1)[-1])
        if trajectory.task.answer is None or not gold_text:
            return Verdict(status="unverifiable", evidence={"gold": "none"}, verifier="math")
        if long := too_long(trajectory, "math"):
            return long
        try:
            answer = self._find(trajectory.final_text)
        except NoAnswer as fault:
            return _malformed(str(fault))
        gold_number, number = _number(gold_text), _number(answer)
        if gold_number and number and self.form == "any":
            return _verdict(same(gold_number, number), answer)
        try:
            gold = Exact(parse(gold_text))
        except (NotMath, TooLarge) as fault:
            if unwrap(answer) == gold_text:
                return _verdict(True, answer)
            return Verdict(status="unverifiable", evidence={"gold": str(fault)}, verifier="math")
        try:
            got = parse(answer)
        except NotMath as fault:
            return _malformed(f"The answer could not be read as mathematics: {fault}.")
        return await self._compare(gold, got, answer)

    async def _compare(self, gold: Exact, got: Node, answer: str) -> Verdict:
        """Two trees: equal, exactly comparable, or for the worker."""
        if self.form == "expanded" and not _expanded(got):
            return _malformed("The answer is not written as a sum of single terms, no two of them alike.")
        if gold.tree == got:
            return _verdict(True, answer)
        try:
            read = Exact(got)
            if (value := gold.constant()) is not None and (other := read.constant()) is not None:
                return _verdict(value == other, answer)
            if (left := gold.polynomial()) is not None and (right := read.polynomial()) is not None:
                return _verdict(left == right, answer)
        except ZeroDivisionError:
            return _verdict(False, answer, "The answer divides by zero.")
        except TooLarge:
            return _verdict(False, answer, "The answer is too large to be worked out.")
        if gold.tree[0] == "text":
            return _verdict(False, answer)
        try:
            found = await judge_in_worker(WORKER, (gold.tree, got), (gold.tree, gold.tree), deadline=self.deadline)
        except Stalled:
            return _verdict(False, answer, "The answer takes too long to be worked out.")
        if found["fault"] == "gold":
            return Verdict(status="unverifiable", evidence={"gold": "sympy cannot handle it"}, verifier="math")
        return _verdict(found["equal"], answer)

    def _find(self, text: str) -> str:
        """The marked answer, or the last formula or number of the last line."""
        try:
            return find_answer(text)
        except NoAnswer:
            if self.marked:
                raise
        return find_last(text)


def _number(text: str) -> Quantity | None:
    """The text as one plain number with or without unit, None for anything else."""
    try:
        return parse_number(text)
    except NotANumber:
        return None


def _expanded(node: Node) -> bool:
    """Whether it is a polynomial in expanded form."""
    try:
        return is_expanded(node)
    except (TooLarge, ZeroDivisionError):
        return False


def _malformed(feedback: str) -> Verdict:
    return Verdict(status="malformed", parts={"format": 0.0, "value": 0.0}, feedback=feedback, verifier="math")


def _verdict(right: bool, answer: str, feedback: str = "The answer is not right.") -> Verdict:
    return Verdict(
        status="ok" if right else "wrong",
        reward=float(right),
        parts={"format": 1.0, "value": float(right)},
        evidence={"read": answer[:200]},
        feedback="" if right else feedback,
        verifier="math",
    )

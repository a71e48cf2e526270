"""How a family of ours asks and answers: wordings, the answer line, token limits, near misses."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from posttrain.envs._base import Family
from posttrain.types import Limits, Message, Response, Task

Wording = TypeVar("Wording")
_PIECE = re.compile(r"[0-9]|[A-Za-z]+|[^\sA-Za-z0-9]")


def ask(
    family: Family,
    seed: int,
    level: int,
    *,
    template: int,
    prompt: str,
    answer: Any,
    oracle: str,
    size: float,
    private: Mapping[str, Any] | None = None,
) -> Task:
    """A single-turn task; ``oracle`` is the reference reply, kept private, and the token limit leaves twice its room.

    ``size`` is the family's size metric.
    """
    return Task(
        id=family.task_id(seed, level),
        environment=family.name,
        version=family.version,
        seed=seed,
        level=level,
        template=str(template),
        prompt=(Message(role="user", content=prompt),),
        limits=Limits(max_tokens=token_limit(oracle)),
        answer=answer,
        private={"oracle": oracle, **(private or {})},
        metadata={"size": size},
    )


def worked(steps: Sequence[str], shown: object) -> str:
    """Worked steps, one a line, and the answer line: ``worked(["2 + 2 = 4"], 4)``."""
    return "\n".join([*steps, f"Answer: {shown}"])


def rough_tokens(text: str) -> int:
    """An upper estimate for subword tokenizers that split digits: one a digit or mark, one per four letters of a word."""
    return sum(1 if not piece.isalpha() else -(-len(piece) // 4) for piece in _PIECE.findall(text)) + text.count("\n")


def token_limit(oracle: str) -> int:
    """Room for the oracle's answer twice over, in steps of 16 tokens, at least 48."""
    return max(48, -(-2 * rough_tokens(oracle) // 16) * 16)


def said(task: Task) -> Response:
    """The oracle's response to a task made by ``ask``."""
    return Response.of(task.private["oracle"])


def number_decoys(task: Task, value: Fraction, *, near: Sequence[Fraction | int] = ()) -> list[Response]:
    """Near misses and tricks around a numeric answer; ``near`` are the family's own typical slips."""
    oracle: str = task.private["oracle"]
    body = oracle.rsplit("\n", 1)[0] + "\n" if "\n" in oracle else ""
    slips = [x for x in dict.fromkeys([*map(Fraction, near), value + 1, value - 1, value * 10]) if x != value]
    out = [Response.of(f"{body}Answer: {slip}", "a slip in the last step") for slip in slips[:4]]
    out.append(Response.of(f"Answer: {value} or {value + 1}", "a hedge"))
    out.append(Response.of(f"Answer: {value}\nAnswer: {value + 1}", "the right answer, then another"))
    out.append(Response.of(f"{value}", "no answer line"))
    out.append(Response.of("", "empty"))
    return out


def text_decoys(task: Task, wrong: Sequence[str]) -> list[Response]:
    """Near misses (``wrong``, none of them right) and tricks around a short textual answer."""
    shown: str = task.private["oracle"].rsplit("Answer: ", 1)[-1]
    out = [Response.of(f"Answer: {w}", "a near miss") for w in dict.fromkeys(wrong) if w != shown]
    other = next((w for w in wrong if w != shown), "none")
    out.append(Response.of(f"Answer: {shown}\nAnswer: {other}", "the right answer, then another"))
    out.append(Response.of(f"Answer: {shown} or {other}", "a hedge"))
    out.append(Response.of(shown, "no answer line"))
    out.append(Response.of("", "empty"))
    return out


def pick(rng: random.Random, wordings: Sequence[Wording]) -> tuple[int, Wording]:
    """A wording and its number, which becomes ``task.template``."""
    at = rng.randrange(len(wordings))
    return at, wordings[at]


def spread(level: int, low: float, high: float) -> int:
    """``low`` at level 0, ``high`` at level 9, evenly between: ``spread(3, 1, 10)`` -> 4."""
    return round(low + (high - low) * level / 9)

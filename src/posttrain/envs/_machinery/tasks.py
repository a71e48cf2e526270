"""Puts a task together where the answer is a document, a query or calls rather than an answer line (for those: asking.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import token_limit
from posttrain.types import Limits, Message, Task, ToolSpec


def put_together(
    family: Family,
    seed: int,
    level: int,
    *,
    wordings: Sequence[str],
    wording: int,
    fields: Mapping[str, str],
    answer: Any,
    oracle: str,
    size: float,
    private: Mapping[str, Any] | None = None,
    tools: tuple[ToolSpec, ...] = (),
    turns: int = 1,
) -> Task:
    """A task whose prompt is ``wordings[wording]`` filled with ``fields``; ``oracle`` is all that the oracle says, kept private.

    With ``turns`` above 1 there is room for twice as many turns and calls as the oracle takes.
    """
    limits = Limits(max_tokens=token_limit(oracle)) if turns == 1 else interactive(oracle, turns)
    return Task(
        id=family.task_id(seed, level),
        environment=family.name,
        version=family.version,
        seed=seed,
        level=level,
        template=str(wording),
        prompt=(Message(role="user", content=wordings[wording].format_map(fields)),),
        tools=tools,
        limits=limits,
        answer=answer,
        private={**(private or {}), "oracle": oracle},
        metadata={"size": size},
    )


def interactive(oracle: str, turns: int) -> Limits:
    """Budgets of a multi-turn task: twice the oracle's tokens, 1.5 times its turns (at least two more), as many calls."""
    more = max(turns + 2, turns * 3 // 2)
    return Limits(max_tokens=token_limit(oracle) + 16 * more, max_turns=more, max_tool_calls=more)

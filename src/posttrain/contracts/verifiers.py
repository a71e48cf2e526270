"""The gate every verifier passes: it never raises, stalls, rewards nothing at all, or gives the answer away."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

from posttrain.contracts import _hostile
from posttrain.errors import InfraError
from posttrain.types import Message, Task, Trajectory, Turn, Verdict
from posttrain.verifiers._base import Verifier

DEADLINE = 10.0  # seconds of this process's own time for one verdict on any text
LOST = 120.0  # seconds of wall time after which a verdict counts as never given
GOLDS: tuple[Any, ...] = (None, "", "4173", 4173, "1/2", ["ab", "cd"], {"value": "3"}, [], {}, True, "x \\frac{", [[1], {"a": 2}])


def check(plugin: object) -> list[str]:
    """What is wrong with a verifier, one sentence each; empty when it passes. Not to be called inside an event loop.

    Task-specific behaviour is the family's gate; this one holds for any task and any text. ``InfraError`` is allowed.
    """
    if not isinstance(plugin, Verifier):
        return ["it has no async method judge(trajectory) -> Verdict"]
    told: dict[str, str] = {}
    for gold in GOLDS:
        for text_name, text in [("4173", "Answer: 4173"), ("a wrong number", "Answer: 12"), *_few(gold)]:
            for kind, what in _one(plugin, gold, text_name, text):
                told.setdefault(kind, what)
    here = asyncio.run(_verdict(plugin, attempt("4173", "Answer: 4173")))
    there: list[Verdict | str] = []
    thread = threading.Thread(target=lambda: there.append(asyncio.run(_verdict(plugin, attempt("4173", "Answer: 4173")))))
    thread.start()
    thread.join(LOST)
    if not there or there[0] != here:
        told["thread"] = f"in a thread it says {there[0] if there else 'nothing'}, here {here}"
    return list(told.values())


def attempt(gold: Any, text: str, **private: Any) -> Trajectory:
    """A single-turn trajectory without tokens: ``attempt("4", "Answer: 4")``."""
    task = Task(
        id="check", environment="check/verifier", prompt=(Message(role="user", content="?"),), answer=gold, private=private
    )
    prompt = Turn(role="prompt", token_ids=(), text="?")
    return Trajectory(task=task, turns=(prompt, Turn(role="assistant", token_ids=(), text=text, stop_reason="stop")))


def _few(gold: Any) -> Iterator[tuple[str, str]]:
    """All hostile texts for an ordinary gold, the short ones for an odd one."""
    return ((n, t) for n, t in _hostile.texts().items() if gold in ("4173", ["ab", "cd"]) or len(t) < 1_000)


def _one(plugin: Verifier, gold: Any, name: str, text: str) -> Iterator[tuple[str, str]]:
    """Faults in judging one text against one gold."""
    start = time.process_time()
    verdict = asyncio.run(_verdict(plugin, attempt(gold, text)))
    took = time.process_time() - start
    where = f"gold {gold!r:.30}, text {name!r}"
    if took > DEADLINE:
        yield "slow", f"{where}: took {took:.1f} s"
    if isinstance(verdict, str):
        yield "raises", f"{where}: {verdict}"
        return
    if not math.isfinite(verdict.reward):
        yield "finite", f"{where}: the reward is {verdict.reward}"
    if gold is None and verdict.status == "ok":
        yield "no gold", f"{where}: judged ok although the task has no answer"
    if not text.strip() and (verdict.status == "ok" or verdict.reward > 0):
        yield "nothing", f"{where}: an empty answer is judged {verdict.status} {verdict.reward:g}"
    if gold in ("4173", 4173) and "4173" not in text and "4173" in verdict.feedback:
        yield "leak", f"{where}: the feedback gives the answer away: {verdict.feedback!r}"


async def _verdict(plugin: Verifier, trajectory: Trajectory) -> Verdict | str:
    """The verdict, or what it raised."""
    try:
        return await plugin.judge(trajectory)
    except InfraError as fault:
        return Verdict(status="infra_error", evidence={"fault": str(fault)})
    except Exception as fault:  # any other exception is the finding here
        return f"raised {type(fault).__name__}: {fault!s:.200}"

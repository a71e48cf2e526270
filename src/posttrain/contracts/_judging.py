"""What a family's verifier must say to right, wrong, empty, constant and hostile answers."""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from posttrain.contracts import _hostile
from posttrain.contracts._play import judged
from posttrain.envs._base import Environment, Family
from posttrain.types import Response, Task, Verdict

DEADLINE = 10.0  # seconds of this process's own time for one verdict on any text
LOST = 120.0  # seconds of wall time after which a verdict counts as never given
MAX_CONSTANT = 0.15
MIN_DECOYS = 3
GENERIC = ("Answer: 0", "Answer: 1", "Answer: yes", "Answer: A", "{}", "0", "I do not know.")
_TOKEN = re.compile(r"[0-9]|[^\W\d]+|[^\w\s]")


async def probes(environment: Environment) -> list[str]:
    """An environment's own known answers."""
    bad = []
    for task, response, right in environment.probes():
        verdict = await timed(environment, task, response)
        if isinstance(verdict, str):
            bad.append(verdict)
        elif right != (verdict.status == "ok" and verdict.reward == 1.0):
            bad.append(f"{task.id}: a {'right' if right else 'wrong'} answer is judged {verdict.status} {verdict.reward:g}")
    return bad


async def check(family: Family, tasks: Sequence[Task]) -> list[str]:
    """Everything about one level's tasks; each kind of fault is told once."""
    told: dict[str, str] = {}
    for part in (_oracles(family, tasks), _decoys(family, tasks), _nothing(family, tasks[:5]), _hostiles(family, tasks[0])):
        async for kind, what in part:
            told.setdefault(kind, what)
    if not told:  # a constant can only be told from a verifier that works
        async for kind, what in _constants(family, tasks):
            told.setdefault(kind, what)
        told |= _in_a_thread(family, tasks[0])
    return list(told.values())


async def timed(environment: Environment, task: Task, response: Response) -> Verdict | str:
    """The verdict, or what went wrong in getting it."""
    start = time.process_time()
    said = response.turns[-1].content[:60] if response.turns else ""
    try:
        verdict = await asyncio.wait_for(judged(environment, task, response), LOST)
    except TimeoutError:
        return f"judging {said!r} on {task.id} took over {LOST:g} s"
    except Exception as fault:  # any exception is the finding here
        return f"judging {said!r} on {task.id} raised {type(fault).__name__}: {fault}"
    if (took := time.process_time() - start) > DEADLINE:
        return f"judging {said!r} on {task.id} blocked for {took:.1f} s"
    if not (math.isfinite(verdict.reward) and 0 <= verdict.reward <= 1):
        return f"{task.id}: the reward {verdict.reward} is not in [0, 1]"
    if (verdict.status == "ok") != (verdict.reward == 1.0):
        return f"{task.id}: status {verdict.status} with reward {verdict.reward:g}; ok means 1.0 and nothing else earns it"
    return verdict


async def _oracles(family: Family, tasks: Sequence[Task]) -> AsyncIterator[tuple[str, str]]:
    """The reference answers: judged 1.0, and within the task's limits."""
    for task in tasks:
        response = family.oracle(task)
        verdict = await timed(family, task, response)
        if isinstance(verdict, str):
            yield "oracle fails", verdict
        elif verdict.status != "ok":
            yield "oracle", f"the oracle of {task.id} is judged {verdict.status} {verdict.reward:g}: {verdict.feedback}"
        # A token is at least a digit, a word or a mark: a lower bound that holds for most tokenizers.
        tokens = sum(len(_TOKEN.findall(m.content)) for m in response.turns)
        calls = sum(len(m.tool_calls) for m in response.turns)
        limits = task.limits
        if tokens > limits.max_tokens or len(response.turns) > limits.max_turns or calls > limits.max_tool_calls:
            yield "limits", f"the oracle of {task.id} needs {tokens} tokens, {len(response.turns)} turns, {calls} calls: {limits}"


async def _decoys(family: Family, tasks: Sequence[Task]) -> AsyncIterator[tuple[str, str]]:
    """Near misses and tricks: enough of them, distinct, most of them real, none judged 1.0."""
    for task in tasks[: max(10, len(tasks) // 4)]:
        decoys = family.decoys(task)
        junk = sum(not any(m.content.strip() or m.tool_calls for m in d.turns) for d in decoys)
        if junk > 1 or len(decoys) - junk < MIN_DECOYS:
            yield "decoys", f"{task.id} has {len(decoys)} decoys, {junk} of them junk; at least {MIN_DECOYS} real ones are needed"
        if len({repr(d.turns) for d in decoys}) < len(decoys):
            yield "same decoys", f"{task.id} has the same decoy twice"
        wrong = 0
        for decoy in decoys:
            verdict = await timed(family, task, decoy)
            if isinstance(verdict, str):
                yield "decoy fails", verdict
                continue
            wrong += verdict.status == "wrong"
            if verdict.reward >= 1:
                yield "decoy", f"a decoy of {task.id} earns {verdict.reward:g}: {_shown(decoy)} ({decoy.note})"
            if verdict.status not in ("wrong", "malformed", "ok"):
                yield "decoy status", f"a decoy of {task.id} is judged {verdict.status}: {_shown(decoy)}"
            if _leaks(task, decoy, verdict):
                yield "leak", f"{task.id}: the feedback gives the answer away: {verdict.feedback!r}"
        if wrong < 2:
            yield (
                "near misses",
                f"only {wrong} decoys of {task.id} are judged wrong (the rest malformed); two near misses are needed",
            )


async def _nothing(family: Family, tasks: Sequence[Task]) -> AsyncIterator[tuple[str, str]]:
    """Saying nothing earns exactly 0."""
    for task in tasks:
        for response in (Response.of(""), Response.of(" \n"), Response(turns=())):
            verdict = await timed(family, task, response)
            if isinstance(verdict, str):
                yield "nothing fails", verdict
            elif verdict.reward != 0 or verdict.status not in ("wrong", "malformed"):
                yield "nothing", f"an empty answer to {task.id} is judged {verdict.status} {verdict.reward:g}"


async def _hostiles(family: Family, task: Task) -> AsyncIterator[tuple[str, str]]:
    """No text raises, stalls or is rewarded, as the only turn or after the session's own beginning."""
    for name, text in _hostile.texts().items():
        start = time.process_time()
        try:
            verdict = await asyncio.wait_for(judged(family, task, Response.of(text)), LOST)
        except Exception as fault:  # any exception is the finding here
            yield name, f"the text {name!r} made {task.id} raise {type(fault).__name__}: {fault!s:.200}"
            continue
        if (took := time.process_time() - start) > DEADLINE:
            yield name, f"the text {name!r} kept {task.id} busy for {took:.1f} s"
        if verdict.status not in ("wrong", "malformed") or not 0 <= verdict.reward < 1:
            yield name, f"the text {name!r} is judged {verdict.status} {verdict.reward:g} on {task.id}"


async def _constants(family: Family, tasks: Sequence[Task]) -> AsyncIterator[tuple[str, str]]:
    """No single answer earns much over all tasks: the commonest reference answers, last lines of them, and stock phrases."""
    whole = [family.oracle(task) for task in tasks]
    candidates = {repr(r.turns): r for r in whole[:3]}
    if all(len(r.turns) == 1 for r in whole):
        said = Counter(r.turns[0].content for r in whole)
        last = Counter(r.turns[0].content.rsplit("\n", 1)[-1] for r in whole)
        texts = [*(t for t, _ in said.most_common(2)), *(t for t, _ in last.most_common(3)), *GENERIC]
        candidates |= {t: Response.of(t) for t in texts}
    else:
        candidates |= {t: Response.of(t) for t in GENERIC[:3]}
    for response in candidates.values():
        total = 0.0
        for task in tasks:
            verdict = await timed(family, task, response)
            total += verdict.reward if isinstance(verdict, Verdict) else 0.0
        if total > MAX_CONSTANT * len(tasks):
            yield "constant", f"always saying {_shown(response)} earns {total / len(tasks):.2f}, more than {MAX_CONSTANT}"


def _in_a_thread(family: Family, task: Task) -> dict[str, str]:
    """A verdict does not depend on the thread that asks for it."""
    response, found = family.oracle(task), list[Verdict | str]()
    thread = threading.Thread(target=lambda: found.append(asyncio.run(timed(family, task, response))))
    thread.start()
    thread.join(LOST)
    if not found or isinstance(found[0], str) or found[0].reward != 1.0:
        return {"thread": f"in a thread the oracle of {task.id} is judged {found[0] if found else 'never'}"}
    return {}


def _leaks(task: Task, decoy: Response, verdict: Verdict) -> bool:
    """Whether the feedback holds a telling answer that neither the prompt nor the decoy holds."""
    gold = str(task.answer) if isinstance(task.answer, str | int) and not isinstance(task.answer, bool) else ""
    seen = " ".join([*(m.content for m in task.prompt), *(m.content for m in decoy.turns)])
    return len(gold) >= 3 and gold in verdict.feedback and gold not in seen


def _shown(response: Response) -> str:
    """A response in short, for a message."""
    return repr(" / ".join(m.content or str(m.tool_calls) for m in response.turns))[:100]

"""What an environment's session must bear: odd calls, and an exact return to any snapshot."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

from posttrain.contracts import _hostile
from posttrain.contracts._play import finish, play, play_turns
from posttrain.envs._base import Family, Session
from posttrain.errors import ToolError
from posttrain.rollout.scripted import opened
from posttrain.types import Observation, Task, ToolCall, Trajectory, Turn


async def check(family: Family, tasks: Sequence[Task]) -> list[str]:
    """Faults of the sessions of ``tasks``; none where tasks have no session."""
    told: dict[str, str] = {}
    for task in tasks:
        if await opened(family, task) is None:
            if task.tools or task.limits.max_turns > 1:
                told["session"] = f"{task.id} has tools or several turns, but start() gives no session"
            break
        async for kind, what in _odd_calls(family, task):
            told.setdefault(kind, what)
        async for kind, what in _snapshots(family, task):
            told.setdefault(kind, what)
    return list(told.values())


async def _opened(family: Family, task: Task) -> Session:
    """A fresh session."""
    session = await opened(family, task)
    assert session is not None
    return session


async def _odd_calls(family: Family, task: Task) -> AsyncIterator[tuple[str, str]]:
    """Every odd call is answered, by an observation or a ``ToolError``."""
    session = await _opened(family, task)
    if tuple(session.tools()) != task.tools:
        yield "tools", f"{task.id}: the session's tools differ from the task's"
    calls = list(_hostile.calls())
    for tool in session.tools():
        names = tuple(tool.parameters.get("properties", {}))
        calls += [ToolCall(name=tool.name, arguments=arguments) for arguments in _hostile.odd_arguments(names)]
    turns = [Turn(role="assistant", token_ids=(), tool_calls=(call,), stop_reason="stop") for call in calls]
    turns.append(Turn(role="assistant", token_ids=(), text="<tool_call>{", malformed="not JSON", stop_reason="stop"))
    turns.append(Turn(role="assistant", token_ids=(), tool_calls=tuple(calls[:3]), stop_reason="stop"))
    for turn in turns:
        session = await _opened(family, task)
        shown = repr(turn.tool_calls[:1] or turn.text)[:100]
        try:
            seen: object = await session.step(turn)
        except ToolError:
            continue
        except Exception as fault:  # any other exception is the finding here
            yield "step", f"{task.id}: step({shown}) raised {type(fault).__name__}: {fault!s:.200}"
            continue
        if not isinstance(seen, Observation):
            yield "step", f"{task.id}: step({shown}) gave {type(seen).__name__}, not an Observation"
            continue
        verdict = await family.verifier.judge(finish(task, [turn], session, seen.done))
        if verdict.reward >= 1:
            yield "odd call", f"{task.id}: {shown} alone is judged {verdict.status} {verdict.reward:g}"


async def _snapshots(family: Family, task: Task) -> AsyncIterator[tuple[str, str]]:
    """After each of the oracle's turns: a snapshot restored into a fresh session goes on exactly as the first would."""
    said = family.oracle(task).turns
    whole = await play(family, task, family.oracle(task))
    for cut in range(1, len(said)):
        first = await _opened(family, task)
        head, done = await play_turns(family, task, first, said[:cut])
        if done:
            break
        state = first.snapshot()
        try:
            stored = json.loads(json.dumps(state))
        except TypeError as fault:
            yield "snapshot", f"{task.id}: the snapshot is not JSON: {fault}"
            return
        await play_turns(family, task, first, said[cut:])  # must not reach into the snapshot
        second = await _opened(family, task)
        second.restore(stored)
        if second.snapshot() != stored:
            yield "restore", f"{task.id}: a snapshot restored after turn {cut} gives another snapshot"
        tail, done = await play_turns(family, task, second, said[cut:])
        again = finish(task, [*head, *tail], second, done)
        if _story(again) != _story(whole):
            yield "restore", f"{task.id}: restored after turn {cut}, the session goes on differently"
        elif (await family.verifier.judge(again)) != (await family.verifier.judge(whole)):
            yield "restore", f"{task.id}: restored after turn {cut}, the verdict differs"


def _story(trajectory: Trajectory) -> object:
    """What happened: texts, calls, rewards, outcome and artefacts."""
    turns = [(t.role, t.text, t.tool_calls, t.reward) for t in trajectory.turns]
    return turns, trajectory.outcome, json.dumps(dict(trajectory.artefacts), sort_keys=True)

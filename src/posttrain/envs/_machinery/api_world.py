"""A small world behind tools: a state of plain JSON, tools that read or change it, and the session that serves them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from posttrain.envs._base import Session
from posttrain.envs._machinery.asking import rough_tokens
from posttrain.errors import ToolError, nearest
from posttrain.types import Limits, Message, Observation, Response, Task, ToolCall, ToolSpec, Turn

State = dict[str, Any]
_TYPES: dict[str, type] = {"string": str, "integer": int}


@dataclass(frozen=True)
class Tool:
    """One tool. ``run(state, **arguments)`` changes the state in place and returns JSON; one that fails changes nothing.

    ``Tool("add", "Adds n pieces.", {"item": "string", "n": "integer"}, run)``
    """

    name: str
    description: str
    arguments: Mapping[str, str]  # name -> "string" or "integer"; all are required
    run: Callable[..., Any]

    @property
    def spec(self) -> ToolSpec:
        """What the policy sees of it; short, as a small model reads it at every call."""
        properties = {name: {"type": kind} for name, kind in self.arguments.items()}
        return ToolSpec(name=self.name, description=self.description, parameters={"type": "object", "properties": properties})

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises ``ToolError`` E_ARGS unless these are exactly the arguments, each of its type."""
        wanted = ", ".join(f"{name} ({kind})" for name, kind in self.arguments.items())
        fits = arguments.keys() == self.arguments.keys() and all(
            isinstance(arguments[name], _TYPES[kind]) and not isinstance(arguments[name], bool)
            for name, kind in self.arguments.items()
        )
        if not fits:
            raise ToolError("E_ARGS", f"{self.name} takes {wanted}")


class WorldSession(Session):
    """Serves the tools of one attempt. A turn without a call ends it; a call that fails changes nothing.

    ``artefacts``: the final ``state`` and the ``calls`` that took effect, in order.
    """

    def __init__(self, tools: Sequence[Tool], state: State) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._state = copy.deepcopy(state)
        self._calls: list[dict[str, Any]] = []

    def tools(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    async def step(self, turn: Turn) -> Observation:
        if turn.malformed:
            raise ToolError("E_FORMAT", turn.malformed[:200])
        if not turn.tool_calls:
            return Observation(done=True)
        if len(turn.tool_calls) == 1:
            return Observation(messages=(self._answer(turn.tool_calls[0], self._run(turn.tool_calls[0])),))
        messages = []
        for call in turn.tool_calls:  # each answers for itself, so one that fails does not hide the others
            try:
                messages.append(self._answer(call, self._run(call)))
            except ToolError as e:
                messages.append(self._answer(call, str(e)))
        return Observation(messages=tuple(messages))

    def snapshot(self) -> Any:
        return copy.deepcopy({"state": self._state, "calls": self._calls})

    def restore(self, state: Any) -> None:
        self._state, self._calls = copy.deepcopy(state["state"]), copy.deepcopy(state["calls"])

    def artefacts(self) -> Mapping[str, Any]:
        return self.snapshot()  # type: ignore[no-any-return]

    def _run(self, call: ToolCall) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            raise ToolError("E_UNKNOWN_TOOL", f"{call.name[:40]!r}.{nearest(call.name[:40], self._tools)}")
        tool.check(call.arguments)
        result = tool.run(self._state, **call.arguments)
        self._calls.append({"name": call.name, "arguments": dict(call.arguments)})
        return result if isinstance(result, str) else json.dumps(result)

    def _answer(self, call: ToolCall, content: str) -> Message:
        return Message(role="tool", content=content, tool_call_id=call.id, name=call.name[:40])


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """``call("add", item="pears", n=3)`` in the form that tasks keep."""
    return {"name": name, "arguments": arguments}


def play(calls: Sequence[Mapping[str, Any]], note: str = "", last: str = "Done.") -> Response:
    """A response that makes these calls, one a turn, and ends with ``last`` (without one where it is empty)."""
    turns = [
        Message(role="assistant", tool_calls=(ToolCall(name=c["name"], arguments=c["arguments"], id=str(i)),))
        for i, c in enumerate(calls)
    ]
    if last:
        turns.append(Message(role="assistant", content=last))
    return Response(turns=tuple(turns), note=note)


def written(calls: Sequence[Mapping[str, Any]]) -> str:
    """About what ``play(calls)`` writes, to size the token budget with."""
    return "\n".join(f"<tool_call>{json.dumps(c)}</tool_call>" for c in calls) + "\nDone."


def effect(tools: Sequence[Tool], state: State, calls: Sequence[Mapping[str, Any]]) -> State:
    """The state after the calls; raises ``ToolError`` where one is impossible."""
    after = copy.deepcopy(state)
    known = {tool.name: tool for tool in tools}
    for one in calls:
        known[one["name"]].check(one["arguments"])
        known[one["name"]].run(after, **one["arguments"])
    return after


def with_tools(task: Task, tools: Sequence[Tool], *, turns: int) -> Task:
    """The task with these tools and budgets: 1.3 times the oracle's tokens and some, 1.5 times its ``turns`` or two more."""
    more = max(turns + 2, turns * 3 // 2)
    limits = Limits(max_tokens=rough_tokens(task.private["oracle"]) * 13 // 10 + 32, max_turns=more, max_tool_calls=more)
    return replace(task, tools=tuple(tool.spec for tool in tools), limits=limits)

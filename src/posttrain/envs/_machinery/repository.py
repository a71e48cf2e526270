"""A small repository behind tools: list, read, search, edit, run the tests. Files are the session's state."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from posttrain.envs._machinery.api_world import State, Tool, WorldSession
from posttrain.errors import EXEC_STATUS, SandboxLost, ToolError, nearest
from posttrain.sandboxes._base import Limits, Needs, Sandbox
from posttrain.sandboxes.shared import in_sandbox
from posttrain.types import Observation, ToolCall, Turn
from posttrain.verifiers.repository import loading

MOST_SHOWN = 1500  # characters of one answer
NEEDS = Needs(level="T2u", limits=Limits(memory=256, cpu=5, wall=30.0))


def _known(state: State, name: str) -> str:
    if name not in state["files"]:
        raise ToolError("E_ARGS", f"there is no file {name[:60]!r}.{nearest(name[:60], state['files'])}")
    return str(state["files"][name])


def _list(state: State) -> str:
    return "\n".join(sorted(state["files"]))


def _read(state: State, name: str) -> str:
    return _known(state, name)[:MOST_SHOWN]


def _search(state: State, text: str) -> str:
    found = [
        f"{name}:{number}: {line}"
        for name, content in sorted(state["files"].items())
        for number, line in enumerate(content.splitlines(), 1)
        if text and text in line
    ]
    return "\n".join(found)[:MOST_SHOWN] or "nothing found"


def _edit(state: State, name: str, old: str, new: str) -> str:
    content = _known(state, name)
    if name in state["tests"]:
        raise ToolError("E_STATE", f"{name} holds the tests; change the code instead")
    times = content.count(old) if old else 0
    if times != 1:
        raise ToolError("E_ARGS", f"old must occur exactly once in {name}, it occurs {times} times")
    if len(new) > 20_000:
        raise ToolError("E_ARGS", "new is longer than 20000 characters")
    state["files"][name] = content.replace(old, new)
    state["edits"] += 1
    return "ok"


FILE = {"name": "string"}
RUN = Tool("run_tests", "Runs the tests.", {}, lambda state: "")
TOOLS = (
    Tool("list_files", "Lists the files.", {}, _list),
    Tool("read_file", "Shows a file.", FILE, _read),
    Tool("search", "Finds lines that hold a text.", {"text": "string"}, _search),
    Tool("edit_file", "Replaces old, which must occur once, by new.", {**FILE, "old": "string", "new": "string"}, _edit),
    RUN,
)


def repository(files: Mapping[str, str], tests: str) -> State:
    """The state of a session: its files, the name of the one with the tests, no edit yet."""
    return {"files": dict(files), "tests": [tests], "edits": 0}


class RepositorySession(WorldSession):
    """Serves ``TOOLS``. ``run_tests`` runs the visible tests on the files as they are, in a sandbox; what it says is no reward.

    ``family``: whose turn it is to get a sandbox. ``artefacts``: ``files`` without the tests, and how many ``edits`` took effect.
    """

    def __init__(self, state: State, family: str) -> None:
        super().__init__(TOOLS, state)
        self._family = family

    async def step(self, turn: Turn) -> Observation:
        if [call.name for call in turn.tool_calls] != [RUN.name]:
            return await super().step(turn)
        self._run(turn.tool_calls[0])  # checks its arguments and counts it
        return Observation(messages=(self._answer(turn.tool_calls[0], await self._tests()),))

    def artefacts(self) -> Mapping[str, Any]:
        files = {name: text for name, text in self._state["files"].items() if name not in self._state["tests"]}
        return copy.deepcopy({"files": files, "edits": self._state["edits"]})

    async def _tests(self) -> str:
        files, (tests,) = dict(self._state["files"]), self._state["tests"]

        async def work(box: Sandbox) -> str:
            result = await box.exec(python=loading(files) + f"exec(compile(FILES[{tests!r}], {tests!r}, 'exec'))\n")
            if EXEC_STATUS[result.status] == "infra_error":
                raise SandboxLost(result.detail)
            said = (result.stdout + result.stderr).decode("utf-8", "replace")
            return said[-MOST_SHOWN:] if said.strip() else f"the tests end with {result.status}"

        return await in_sandbox(NEEDS, work, key=self._family)

    def _run(self, call: ToolCall) -> str:
        if call.name != RUN.name:
            return super()._run(call)
        RUN.check(call.arguments)
        return "run the tests by themselves, in a turn of their own"

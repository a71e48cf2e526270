"""A stock of goods behind three tools."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from posttrain.envs._base import Family, Session
from posttrain.envs._machinery.api_world import State, Tool, WorldSession, call, effect, play, with_tools, written
from posttrain.envs._machinery.asking import ask, pick
from posttrain.envs._machinery.words import GOODS
from posttrain.errors import ToolError
from posttrain.sandboxes._base import Sandbox
from posttrain.types import Response, Task
from posttrain.verifiers.tool_calls import ToolCalls

WORDINGS = (
    "{job} Use the tools, then say done.",
    "Stock job: {job} Call the tools; when finished say done.",
    "Please do this with the tools: {job} Then answer done.",
    "Task: {job}\nMake the tool calls, then say done.",
)


def _count(state: State, item: str) -> int:
    if item not in state:
        raise ToolError("E_STATE", f"there is no shelf for {item[:40]!r}")
    return int(state[item])


def _add(state: State, item: str, n: int) -> str:
    if not 1 <= n <= 100_000:
        raise ToolError("E_ARGS", "n must be from 1 to 100000")
    state[item] = _count(state, item) + n
    return "ok"


def _take(state: State, item: str, n: int) -> str:
    if n < 1:
        raise ToolError("E_ARGS", "n must be at least 1")
    if _count(state, item) < n:
        raise ToolError("E_STATE", f"there are not that many {item}")
    state[item] -= n
    return "ok"


AMOUNT = {"item": "string", "n": "integer"}
TOOLS = (
    Tool("add", "Adds n of an item.", AMOUNT, _add),
    Tool("take", "Takes n of an item.", AMOUNT, _take),
    Tool("count", "Counts an item.", {"item": "string"}, _count),
)


def _tools(level: int) -> tuple[Tool, ...]:
    """Counting is only offered where a job needs it: every tool lengthens the prompt."""
    return TOOLS if level >= 2 else TOOLS[:2]


@dataclass(frozen=True)
class Inventory(Family):
    """Add and take goods by tool calls; judged by the calls that took effect and by the final stock.

    Level 0: one call. From level 2 some numbers must be counted first ("take half of the pears", "add as many plums as there
    are pears"), ten jobs that build on one another at level 9. Size: calls needed.
    """

    @property
    def verifier(self) -> ToolCalls:
        return ToolCalls()

    async def start(self, task: Task, sandbox: Sandbox | None) -> Session:
        return WorldSession(_tools(task.level), task.private["state"])

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        items = rng.sample(GOODS, 3 + level)
        state: State = {item: 2 * rng.randint(10, 45) for item in items}
        now, jobs, calls = dict(state), [], []
        for _ in range(level + 1):
            said, made = self._job(rng, now, items[: 2 + level // 2], counted=level >= 2)
            now = effect(TOOLS, now, made)
            jobs.append(said)
            calls += made
        order = "Do these in order: " if level >= 2 else ""
        template, wording = pick(rng, WORDINGS)
        task = ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(job=order + " ".join(jobs)),
            answer={
                "calls": [c for c in calls if c["name"] != "count"],
                "free": ["count"],
                "ordered": level >= 2,
                "state": now,
            },
            oracle=written(calls),
            size=len(calls),
            private={"state": state, "calls": calls},
        )
        return with_tools(task, _tools(level), turns=len(calls) + 1)

    def oracle(self, task: Task) -> Response:
        return play(task.private["calls"])

    def decoys(self, task: Task) -> list[Response]:
        *others, last = task.private["calls"]
        item, n = last["arguments"]["item"], last["arguments"]["n"]
        return [
            play([*others, call(last["name"], item=item, n=n + 1)], "one too many"),
            play([*others, call("add" if last["name"] == "take" else "take", item=item, n=n)], "the other way round"),
            play([*others, last, call("add", item=item, n=1)], "one call more"),
            play([*others, call(last["name"], item="tea", n=n)], "another item"),
            play([*others, call(last["name"], item=item, n=str(n))], "a number as text"),
            play(others, "the last job is missing"),
        ]

    def size(self, task: Task) -> float:
        return float(task.metadata["size"])

    def _job(self, rng: random.Random, now: State, items: list[str], *, counted: bool) -> tuple[str, list[dict[str, Any]]]:
        """(what to say, the calls it takes); ``now`` is the stock before it."""
        item, other = rng.sample(items, 2)
        kind = rng.choice(("half", "as many", "down to", "plain") if counted else ("plain",))
        if kind == "half" and now[item] >= 2 and now[item] % 2 == 0:
            return f"Take half of the {item}.", [call("count", item=item), call("take", item=item, n=now[item] // 2)]
        if kind == "as many" and 0 < now[other] < 500:
            return (
                f"Add as many {item} as there are {other}.",
                [call("count", item=other), call("add", item=item, n=now[other])],
            )
        keep = rng.randint(2, 9)
        if kind == "down to" and now[item] > keep:
            return f"Take {item} until {keep} are left.", [call("count", item=item), call("take", item=item, n=now[item] - keep)]
        if rng.random() < 0.5 and now[item] > 9:
            n = rng.randint(2, 9 if counted else now[item])
            return f"Take {n} {item}.", [call("take", item=item, n=n)]
        n = rng.randint(2, 99)
        return f"Add {n} {item}.", [call("add", item=item, n=n)]

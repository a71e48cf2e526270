"""Accounts of coins behind two tools: payments that must come in the right order."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from posttrain.envs._base import Family, Session
from posttrain.envs._machinery.api_world import State, Tool, WorldSession, call, effect, play, with_tools, written
from posttrain.envs._machinery.asking import ask, pick
from posttrain.envs._machinery.words import NAMES
from posttrain.errors import ToolError
from posttrain.sandboxes._base import Sandbox
from posttrain.types import Response, Task
from posttrain.verifiers.tool_calls import ToolCalls

WORDINGS = (
    "{job} Use the tools, then say done.",
    "Bank order: {job} Call the tools; when finished say done.",
    "Please arrange this with the tools: {job} Then answer done.",
    "Payments: {job}\nMake the tool calls, then say done.",
)


def _balance(state: State, name: str) -> int:
    if name not in state:
        raise ToolError("E_STATE", f"{name[:40]!r} has no account")
    return int(state[name])


def _pay(state: State, payer: str, to: str, coins: int) -> str:
    for name in (payer, to):
        _balance(state, name)
    if coins < 1 or payer == to:
        raise ToolError("E_ARGS", "coins must be at least 1 and go to somebody else")
    if state[payer] < coins:
        raise ToolError("E_STATE", f"{payer} has fewer coins than that")
    state[payer] -= coins
    state[to] += coins
    return "ok"


TOOLS = (
    Tool("pay", "Pays coins.", {"payer": "string", "to": "string", "coins": "integer"}, _pay),
    Tool("balance", "Coins somebody has.", {"name": "string"}, _balance),
)


def _tools(level: int) -> tuple[Tool, ...]:
    """Level 0 needs no balance: every tool lengthens the prompt."""
    return TOOLS if level >= 1 else TOOLS[:1]


@dataclass(frozen=True)
class Ledger(Family):
    """Payments between accounts; an account cannot pay what it does not have yet, so the order counts.

    Level 0: one payment. Level 1: one that needs the balance first ("all the coins"). Level 9: ten payments among nine accounts,
    most depending on what the ones before them left. Size: calls needed.
    """

    @property
    def verifier(self) -> ToolCalls:
        return ToolCalls()

    async def start(self, task: Task, sandbox: Sandbox | None) -> Session:
        return WorldSession(_tools(task.level), task.private["state"])

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        people = rng.sample(NAMES, 3 + level * 2 // 3)
        state: State = {name: rng.randint(20, 99) for name in people}
        now, jobs, calls, last = dict(state), [], [], people[0]
        for _ in range(max(level, 1) + (level == 9)):
            said, made, last = self._payment(rng, now, last, depends=level > 0)
            now = effect(TOOLS, now, made)
            jobs.append(said)
            calls += made
        order = "Do these in order: " if len(jobs) > 1 else ""
        template, wording = pick(rng, WORDINGS)
        task = ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(job=order + " ".join(jobs)),
            answer={"calls": [c for c in calls if c["name"] == "pay"], "free": ["balance"], "ordered": True, "state": now},
            oracle=written(calls),
            size=len(calls),
            private={"state": state, "calls": calls},
        )
        return with_tools(task, _tools(level), turns=len(calls) + 1)

    def oracle(self, task: Task) -> Response:
        return play(task.private["calls"])

    def decoys(self, task: Task) -> list[Response]:
        *others, last = task.private["calls"]
        payer, to, coins = (last["arguments"][k] for k in ("payer", "to", "coins"))
        found = [
            play([*others, call("pay", payer=payer, to=to, coins=coins - 1 or 2)], "another amount"),
            play([*others, call("pay", payer=to, to=payer, coins=coins)], "the other way round"),
            play([*others, last, call("pay", payer=to, to=payer, coins=1)], "one payment too many"),
            play([*others, call("pay", payer=payer, to=to, coins=float(coins))], "a float"),
            play([c for c in others if c["name"] == "balance"], "only looks", "All coins were paid."),
        ]
        if len(task.answer["calls"]) > 1:
            found.append(play(task.private["calls"][::-1], "in reverse order"))
        return found

    def size(self, task: Task) -> float:
        return float(task.metadata["size"])

    def _payment(self, rng: random.Random, now: State, last: str, *, depends: bool) -> tuple[str, list[dict[str, Any]], str]:
        """(what to say, its calls, who received): mostly the one who was paid last goes on paying."""
        able = [name for name in now if now[name] >= 4]
        payer = last if depends and now[last] >= 4 and rng.random() < 0.8 else rng.choice(able)
        to = rng.choice([name for name in now if name != payer])
        kind = rng.choice(("all", "all but", "half")) if depends else "plain"
        if kind == "half" and now[payer] % 2 == 0:
            return self._counted(now, payer, to, f"{payer} pays half of {payer}'s coins to {to}.", now[payer] // 2)
        if kind == "all but":
            keep = rng.randint(1, min(9, now[payer] - 1))
            return self._counted(now, payer, to, f"{payer} pays {to} all coins but {keep}.", now[payer] - keep)
        if kind == "plain":
            coins = rng.randint(2, min(19, now[payer]))
            return f"{payer} pays {coins} coins to {to}.", [call("pay", payer=payer, to=to, coins=coins)], to
        return self._counted(now, payer, to, f"{payer} pays all of {payer}'s coins to {to}.", now[payer])

    def _counted(self, now: State, payer: str, to: str, said: str, coins: int) -> tuple[str, list[dict[str, Any]], str]:
        return said, [call("balance", name=payer), call("pay", payer=payer, to=to, coins=coins)], to

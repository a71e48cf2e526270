"""A world small enough to see through: bytes for tokens, a counter with one tool, an engine that answers from its key."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from posttrain.engines._base import Request
from posttrain.envs._base import Environment, Session
from posttrain.errors import InfraError, ToolError
from posttrain.types import Limits, Message, Observation, Response, Task, ToolCall, ToolSpec, Trajectory, Turn, Verdict

STOP = 256
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class ByteRenderer:
    """Every byte is a token and 256 stops; "[role]" opens a message."""

    stop_ids = (STOP,)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def assistant_text(self, message: Message) -> str:
        calls = "".join(
            f"<tool_call>{json.dumps({'name': c.name, 'arguments': dict(c.arguments)})}</tool_call>" for c in message.tool_calls
        )
        return message.content + calls

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        shown = "".join(f"[{m.role}]{m.content}" for m in messages)
        return self.encode("".join(f"[tool {t.name}]" for t in tools) + shown + "[assistant]")

    def observation(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return self.encode("".join(f"[{m.role}]{m.content}" for m in messages) + "[assistant]")

    def row(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[Turn, ...]:
        first = next(i for i, m in enumerate(messages) if m.role == "assistant")
        turns = [Turn(role="prompt", token_ids=self.prompt(messages[:first], tools))]
        seen: list[Message] = []
        for m in messages[first:]:
            if m.role != "assistant":
                seen.append(m)
                continue
            if seen:
                turns.append(Turn(role="observation", token_ids=self.observation(seen)))
                seen = []
            text = self.assistant_text(m)
            turns.append(Turn(role="assistant", token_ids=(*self.encode(text), STOP), text=text, tool_calls=m.tool_calls))
        return tuple(turns)

    def read(self, turn: Turn) -> Turn:
        text = self.decode(turn.token_ids)
        calls, malformed = [], ""
        for i, raw in enumerate(_CALL.findall(text)):
            try:
                data = json.loads(raw)
                calls.append(ToolCall(name=data["name"], arguments=data["arguments"], id=str(i)))
            except (ValueError, KeyError) as error:
                malformed = f"call {i}: {error}"
        return replace(turn, text=text, tool_calls=tuple(calls), malformed=malformed)


class Exact:
    """Right where the final text ends in the answer."""

    async def judge(self, trajectory: Trajectory) -> Verdict:
        if not trajectory.final_text:
            return Verdict(status="malformed", verifier="Exact")
        right = trajectory.final_text.split()[-1] == str(trajectory.task.answer)
        return Verdict(status="ok" if right else "wrong", reward=float(right), parts={"value": float(right)}, verifier="Exact")


@dataclass(frozen=True)
class Toy(Environment):
    """Single turn: say the answer."""

    judge_with: Any = field(default_factory=Exact)
    probing: bool = True

    @property
    def name(self) -> str:
        return "toy/say"

    @property
    def verifier(self) -> Any:
        return self.judge_with

    def task(self, n: int) -> Task:
        return Task(id=f"toy/say/{n}", environment=self.name, prompt=(Message(role="user", content=f"say {n}"),), answer=n)

    def tasks(self) -> Iterator[Task]:
        return (self.task(n) for n in range(100))

    def oracle(self, task: Task) -> Response:
        return Response.of(f"it is {task.answer}")

    def probes(self) -> Iterator[tuple[Task, Response, bool]]:
        if self.probing:
            yield self.task(7), self.oracle(self.task(7)), True
            yield self.task(7), Response.of("it is 8", "off by one"), False


class Counting(Session):
    """Adds what it is told; done when a turn makes no call."""

    def __init__(self) -> None:
        self.total = 0

    def tools(self) -> tuple[ToolSpec, ...]:
        return (ToolSpec(name="add"),)

    async def step(self, turn: Turn) -> Observation:
        if not turn.tool_calls:
            return Observation(done=True)
        call = turn.tool_calls[0]
        if call.name != "add":
            raise ToolError("E_UNKNOWN_TOOL", call.name)
        self.total += int(call.arguments["n"])
        return Observation(messages=(Message(role="tool", content=str(self.total)),), reward=0.25)

    def snapshot(self) -> Any:
        return {"total": self.total}

    def restore(self, state: Any) -> None:
        self.total = state["total"]

    def artefacts(self) -> Mapping[str, Any]:
        return {"total": self.total}


class Total:
    """Right where the counter stands at the answer."""

    async def judge(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.artefacts.get("total") == trajectory.task.answer
        return Verdict(status="ok" if right else "wrong", reward=float(right))


@dataclass(frozen=True)
class Counter(Environment):
    """Multi-turn: bring the counter to the answer."""

    limits: Limits = field(default_factory=lambda: Limits(max_tokens=10_000, max_turns=6))

    @property
    def name(self) -> str:
        return "toy/counter"

    @property
    def verifier(self) -> Any:
        return Total()

    def task(self, n: int) -> Task:
        prompt = (Message(role="user", content=f"count to {n}"),)
        return Task(id=f"toy/counter/{n}", environment=self.name, prompt=prompt, answer=n, limits=self.limits)

    def tasks(self) -> Iterator[Task]:
        return (self.task(n) for n in range(100))

    async def start(self, task: Task, sandbox: Any) -> Session:
        return Counting()

    def oracle(self, task: Task) -> Response:
        return script(*(("add", {"n": 1}),) * int(task.answer), "done")

    def reference(self, task: Task) -> Response:
        return self.oracle(task)


def script(*says: Any) -> Response:
    """``script(("add", {"n": 1}), "done")``: calls and texts, one a turn."""
    turns = [
        Message(role="assistant", content=x)
        if isinstance(x, str)
        else Message(role="assistant", tool_calls=(ToolCall(name=x[0], arguments=x[1]),))
        for x in says
    ]
    return Response(turns=tuple(turns))


class KeyedEngine:
    """Says the answer or not, as its key decides, with probability ``skill``; ``fail`` may raise or stall first."""

    trains, max_context = True, 1 << 30

    def __init__(self, skill: float = 0.5, fail: Callable[[Request, int], Any] | None = None) -> None:
        self.renderer = ByteRenderer()
        self.skill, self.fail = skill, fail
        self.policy_version, self.weights_hash = 3, "w3"
        self.calls: dict[str, int] = {}
        self.order: list[str] = []
        self.released: list[str] = []
        self.aborted: list[str] = []
        self.running = self.peak = 0

    async def sample(self, request: Request) -> Turn:
        name = f"{request.key.attempt_id}|{request.key.turn}"
        self.order.append(name)
        self.calls[name] = self.calls.get(name, 0) + 1
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(0)
            if self.fail is not None:
                failing = self.fail(request, self.calls[name])
                if failing is not None:
                    await failing
            u = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48
            n = request.key.task_id.rsplit("/", 1)[-1]
            text = f"it is {n if u < self.skill else 'x'}"
            tokens = (*self.renderer.encode(text), STOP)[: request.sampling.max_tokens]
            stop = "stop" if tokens[-1] == STOP else "length"
            k = len(tokens)
            return Turn(
                role="assistant",
                token_ids=tokens,
                rollout_logprobs=(-0.5,) * k,
                policy_versions=(self.policy_version,) * k,
                weights_hash=self.weights_hash,
                stop_reason=stop,
            )
        finally:
            self.running -= 1

    async def abort(self, attempt_id: str) -> None:
        self.aborted.append(attempt_id)

    async def release(self, attempt_id: str) -> None:
        self.released.append(attempt_id)


def sometimes(
    share: float, error: Callable[[], Exception] = lambda: InfraError("the sandbox crashed")
) -> Callable[[Request, int], Any]:
    """Fails the given share of tries, decided by key and try."""

    def fail(request: Request, attempt: int) -> Any:
        digest = hashlib.sha256(f"{request.key}{attempt}".encode()).digest()
        if int.from_bytes(digest[:6], "big") / 2**48 < share:
            raise error()
        return None

    return fail


@pytest.fixture
def world() -> SimpleNamespace:
    return SimpleNamespace(
        ByteRenderer=ByteRenderer,
        Counter=Counter,
        Counting=Counting,
        Exact=Exact,
        KeyedEngine=KeyedEngine,
        STOP=STOP,
        Toy=Toy,
        script=script,
        sometimes=sometimes,
    )

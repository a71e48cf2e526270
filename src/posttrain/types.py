"""The records of posttrain. Standard library only.

One record flows one way: Task -> Trajectory -> Verdict -> advantage -> Batch -> update. Everything here is frozen;
a stage returns ``dataclasses.replace(trajectory, ...)``. Each field's comment says who sets it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1

Outcome = Literal["finished", "truncated", "invalid", "infra_error"]
Status = Literal["ok", "wrong", "malformed", "unverifiable", "infra_error"]
TRAINABLE: tuple[Status, ...] = ("ok", "wrong", "malformed")
TurnRole = Literal["prompt", "assistant", "observation"]
StopReason = Literal["", "stop", "length", "abort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call the policy made. ``ToolCall(name="add", arguments={"a": 1, "b": 2}, id="0")``."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool the policy may call; ``parameters`` is a JSON Schema object.

    ``ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {"type": "number"}}})``
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat message, the text form that people and templates use. ``Message(role="user", content="2+2?")``."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Budgets that decide a reward: tokens, turns and tool calls, never a wall clock.

    ``max_tokens`` counts sampled tokens over the whole attempt, ``max_turns`` assistant turns.
    """

    max_tokens: int = 128
    max_turns: int = 1
    max_tool_calls: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem. The policy may see ``prompt``, ``tools``, ``limits``; never ``answer`` and ``private``.

    ``Task(id="sums/add@1/L0/s7", environment="sums/add", prompt=(Message(role="user", content="2+2?"),), answer="4")``
    """

    id: str  # the environment: unique within it and stable over processes
    environment: str  # "<domain>/<family>"
    version: str = "1"
    seed: int = 0
    level: int = 0
    template: str = "0"  # the prompt's wording; intervals are clustered by (environment, template)
    prompt: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    limits: Limits = Limits()
    answer: Any = None  # private, JSON-serialisable
    private: Mapping[str, Any] = field(default_factory=dict)  # hidden tests, database contents ...
    metadata: Mapping[str, Any] = field(default_factory=dict)  # size metric, provenance; may be shown to people

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError(f"task {self.id!r} has an empty prompt; give at least one user message")

    @property
    def domain(self) -> str:
        """The part of ``environment`` before the slash: "sums/add" -> "sums"."""
        return self.environment.split("/", 1)[0]

    @property
    def prompt_hash(self) -> str:
        """SHA-256 over what the policy sees, whitespace-normalised; train and held-out sets are disjoint by it."""
        seen = [[m.role, " ".join(m.content.split())] for m in self.prompt]
        return hashlib.sha256(json.dumps(seen, ensure_ascii=False).encode()).hexdigest()

    @property
    def held_out(self) -> bool:
        """One task in eight, chosen by its prompt's hash: pools never draw it, evaluation draws nothing else."""
        return int(self.prompt_hash[:8], 16) % 8 == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What an oracle or a decoy would say: assistant messages, one a turn.

    ``Response(turns=(Message(role="assistant", content="2+2=4. Answer: 4"),))``
    """

    turns: tuple[Message, ...]
    note: str = ""  # for decoys: what is wrong with it

    @classmethod
    def of(cls, text: str, note: str = "") -> Response:
        """A single-turn response: ``Response.of("4")``."""
        return cls(turns=(Message(role="assistant", content=text),), note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the engine draws tokens. Logprobs are always taken under exactly this distribution.

    ``temperature=0`` is greedy; its logprobs are those of temperature 1.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0: off
    min_p: float = 0.0
    max_tokens: int = 128  # this turn's budget

    def __post_init__(self) -> None:
        if not (self.temperature >= 0 and 0 < self.top_p <= 1 and self.top_k >= 0 and 0 <= self.min_p < 1):
            raise ValueError(f"sampling out of range: {self}; need temperature >= 0, 0 < top_p <= 1, top_k >= 0, 0 <= min_p < 1")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; an attempt needs at least 1 token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Names one turn of one attempt; sampling noise depends on it and on the position, on nothing else."""

    seed: int
    task_id: str
    visit: int = 0
    attempt: int = 0
    turn: int = 0

    @property
    def attempt_id(self) -> str:
        """The attempt this turn belongs to, the unit of abort and release."""
        return f"{self.seed}|{self.task_id}|{self.visit}|{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A stretch of tokens, sampled (assistant) or read (prompt, observation). ``text`` is a view of the tokens.

    ``Turn(role="assistant", token_ids=(19, 2), rollout_logprobs=(-0.1, -0.0), policy_versions=(3, 3), text="4",
    stop_reason="stop")`` - the stop token is part of the turn and trains.
    """

    role: TurnRole
    token_ids: tuple[int, ...]
    rollout_logprobs: tuple[float, ...] = ()  # engine; assistant turns that were sampled
    policy_versions: tuple[int, ...] = ()  # engine; weights that produced each token
    weights_hash: str = ""  # engine; content hash of those weights, echoed
    text: str = ""  # engine or renderer; decoded without special tokens
    stop_reason: StopReason = ""
    loss_mask: tuple[bool, ...] | None = None  # None: every token of an assistant turn trains, none of another
    tool_calls: tuple[ToolCall, ...] = ()  # renderer
    malformed: str = ""  # renderer: why the tool calls could not be read
    images: tuple[Any, ...] = ()
    reward: float | None = None  # session: process reward
    snapshot: str | None = None  # rollout: sandbox snapshot after this turn
    advantages: tuple[float, ...] = ()  # advantage: per token; empty means the trajectory's advantage
    policy_logprobs: tuple[float, ...] = ()  # policy: at the training step
    proximal_logprobs: tuple[float, ...] = ()
    ref_logprobs: tuple[float, ...] = ()
    teacher_logprobs: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.token_ids)
        for name in (
            "rollout_logprobs",
            "policy_versions",
            "advantages",
            "policy_logprobs",
            "proximal_logprobs",
            "ref_logprobs",
            "teacher_logprobs",
            "values",
        ):
            got = len(getattr(self, name))
            if got not in (0, n):
                raise ValueError(f"turn has {n} tokens but {got} {name}; they must be equal in number or absent")
        if self.loss_mask is not None and len(self.loss_mask) != n:
            raise ValueError(f"turn has {n} tokens but a loss_mask of {len(self.loss_mask)}")
        if self.reward is not None and not math.isfinite(self.reward):
            raise ValueError(f"turn reward is {self.reward}; rewards must be finite")

    @property
    def mask(self) -> tuple[bool, ...]:
        """Which tokens train."""
        if self.loss_mask is not None:
            return self.loss_mask
        return (self.role == "assistant",) * len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A verifier's judgement. ``ok``, ``wrong``, ``malformed`` may train; ``unverifiable``, ``infra_error`` never do.

    ``Verdict(status="wrong", reward=0.0, parts={"format": 1.0, "value": 0.0}, feedback="Expected an even number.")``
    """

    status: Status
    reward: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    step_rewards: tuple[tuple[int, int, int, float], ...] = ()  # (turn, first token, last token + 1, reward)
    evidence: Mapping[str, Any] = field(default_factory=dict)  # JSON-serialisable
    feedback: str = ""  # one sentence, fit to be the next turn; never reveals the answer
    verifier: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.reward):
            raise ValueError(f"verdict reward is {self.reward}; rewards must be finite")

    @property
    def trains(self) -> bool:
        """Whether this verdict may enter a gradient."""
        return self.status in TRAINABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The record of one attempt; an SFT row is one that nobody sampled, with advantage 1.

    ``turns[0]`` is the rendered prompt; assistant and observation turns alternate after it.
    """

    task: Task
    visit: int = 0  # pool: how often the task had been drawn before
    attempt: int = 0
    seed: int = 0
    turns: tuple[Turn, ...]
    outcome: Outcome = "finished"
    error: str = ""  # rollout: what failed, for invalid and infra_error
    sampling: Sampling | None = None  # rollout
    parent: tuple[str, int] | None = None  # (trajectory id, turn) it branches from
    artefacts: Mapping[str, Any] = field(default_factory=dict)  # session: final state, files
    verdict: Verdict | None = None  # verifier
    reward: float | None = None  # verifier; shaping may change it, the verdict stays
    advantage: float | None = None  # advantage; None: not assigned, does not train
    weight: float = 1.0  # row weight in the loss
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds by stage
    retries: int = 0  # rollout: infrastructure failures before this attempt succeeded
    metadata: Mapping[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.reward is not None and not math.isfinite(self.reward):
            raise ValueError(f"reward of {self.id} is {self.reward}; rewards must be finite")

    @property
    def id(self) -> str:
        """Unique in a run: task, visit and attempt."""
        return f"{self.task.id}#{self.visit}.{self.attempt}"

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens in order."""
        return tuple(t for turn in self.turns for t in turn.token_ids)

    @property
    def num_sampled(self) -> int:
        """Tokens of assistant turns."""
        return sum(len(t.token_ids) for t in self.turns if t.role == "assistant")

    @property
    def final_text(self) -> str:
        """Text of the last assistant turn, "" if there is none."""
        return next((t.text for t in reversed(self.turns) if t.role == "assistant"), "")

    @property
    def policy_version(self) -> int | None:
        """Oldest version among the sampled tokens; None when nothing was sampled."""
        versions = [v for t in self.turns for v in t.policy_versions]
        return min(versions) if versions else None

    @property
    def trains(self) -> bool:
        """A judged attempt whose verdict may train, or an unsampled row."""
        if self.outcome == "infra_error":
            return False
        return self.verdict is None or self.verdict.trains


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The trajectories of one task (and one start). Only those that may train count for baselines."""

    task: Task
    trajectories: tuple[Trajectory, ...]
    start: tuple[str, int] | None = None

    @property
    def trained(self) -> tuple[Trajectory, ...]:
        """Members with a reward that may train; infrastructure failures and unverifiable ones are left out."""
        return tuple(t for t in self.trajectories if t.trains and t.reward is not None)

    @property
    def rewards(self) -> tuple[float, ...]:
        """Rewards of ``trained``, in order."""
        return tuple(t.reward for t in self.trained if t.reward is not None)

    @property
    def mixed(self) -> bool:
        """Whether rewards differ: equality is decided on rewards, never on a standard deviation."""
        return len(set(self.rewards)) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a session answers to a turn. ``content`` is rendered as messages; ``done`` ends the attempt."""

    messages: tuple[Message, ...] = ()
    images: tuple[Any, ...] = ()
    reward: float | None = None
    done: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens [start, end) of the packed row; they see themselves causally, and ``parent`` and its parents wholly.

    ``Segment(0, 80, -1)`` is a prompt, ``Segment(80, 110, 0)`` one of its answers; plain packing has parents of -1 only.
    """

    start: int
    end: int
    parent: int = -1


@dataclass(frozen=True, slots=True)
class Segments:
    """All segments in token order; a parent comes before its children. Together they cover every token once."""

    items: tuple[Segment, ...]

    def __post_init__(self) -> None:
        at = 0
        for i, s in enumerate(self.items):
            if s.start != at or s.end <= s.start or not -1 <= s.parent < i:
                raise ValueError(f"segment {i} is {s}; segments are contiguous, not empty, and follow their parents")
            at = s.end

    def ancestors(self, index: int) -> list[Segment]:
        """From the root down to the parent of ``index``."""
        chain: list[Segment] = []
        parent = self.items[index].parent
        while parent >= 0:
            chain.append(self.items[parent])
            parent = self.items[parent].parent
        return chain[::-1]

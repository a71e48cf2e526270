"""One attempt, single-turn or long: prompt -> (sample -> session answers) until it ends; then a verdict.

What was sampled is kept as token ids and never tokenised again: an observation is rendered on its own and appended.
What the policy does wrong is part of the attempt; what breaks on our side makes the outcome ``infra_error`` and no reward.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from posttrain.engines._base import Engine, Request
from posttrain.envs._base import Environment, Family, Session
from posttrain.errors import DeadlineExceeded, InfraError, PosttrainError, ToolError, UsageError
from posttrain.rollout.deadlines import DEFAULT, Deadlines, within
from posttrain.sandboxes._base import Sandbox
from posttrain.types import Key, Message, Observation, Outcome, Sampling, Task, Trajectory, Turn, Verdict


class Broken(InfraError):
    """An environment's or verifier's own code raised: a bug, not retried; a few of them end the run."""


class NoRoom(InfraError):
    """The prompt fills the engine's context, so nothing can be sampled: not retried; the task is left out and counted."""


async def run(
    task: Task,
    environment: Environment,
    engine: Engine,
    sandbox: Sandbox | None,
    *,
    seed: int,
    visit: int,
    attempt: int,
    sampling: Sampling,
    start: tuple[Trajectory, int] | None = None,
    deadlines: Deadlines = DEFAULT,
) -> Trajectory:
    """Makes one attempt and returns it unjudged.

    ``start`` is (parent, index of one of its turns): the attempt goes on after that turn, from its snapshot; inherited
    turns do not train again. The same arguments give the same attempt. An attempt that fills the engine's context is
    ``truncated``. ``metadata["failure"]`` names the kind of an ``infra_error``. Raises ``UsageError`` where the task cannot be
    rendered or branched.
    """
    key = Key(seed=seed, task_id=task.id, visit=visit, attempt=attempt)
    now = _Attempt(task, environment, engine, sandbox, key, sampling, deadlines)
    metadata: dict[str, Any] = {"started_version": engine.policy_version}
    began = time.perf_counter()
    try:
        await now.begin(start)
        now.require_room()
        await now.go_on()
        if now.session is not None:
            with now.owned("artefacts"):
                now.artefacts = dict(now.session.artefacts())
    except InfraError as error:
        now.outcome, now.error = "infra_error", str(error)
        metadata["failure"] = type(error).__name__
        if isinstance(error, DeadlineExceeded):
            await _quietly(engine.abort(key.attempt_id))
    except asyncio.CancelledError:
        await _quietly(engine.abort(key.attempt_id))
        raise
    finally:
        await _quietly(engine.release(key.attempt_id))
    now.timings["attempt"] = time.perf_counter() - began
    return Trajectory(
        task=task,
        visit=visit,
        attempt=attempt,
        seed=seed,
        turns=tuple(now.turns),
        outcome=now.outcome,
        error=now.error,
        sampling=sampling,
        parent=None if start is None else (start[0].id, start[1]),
        artefacts=now.artefacts,
        timings=now.timings,
        metadata=metadata,
    )


async def judge(trajectory: Trajectory, environment: Environment, *, deadline: float = DEFAULT.judge) -> Trajectory:
    """Adds verdict and reward. Truncated and invalid attempts are judged too: the verifier says what they are worth.

    A verifier past its deadline, lost, or with a bug gives an ``infra_error`` verdict, outcome ``infra_error`` and no
    reward. Raises ``UsageError`` or ``InvalidRun`` where a user's own function is at fault.
    """
    verifier = environment.verifier
    name = type(verifier).__name__
    if trajectory.outcome == "infra_error":
        return replace(trajectory, verdict=Verdict(status="infra_error", verifier=name, evidence={"error": trajectory.error}))
    what = f"verifier {name} of {environment.name} on {trajectory.id}"
    began = time.perf_counter()
    try:
        verdict = await within(what, deadline, verifier.judge(trajectory))
        _check(verdict, environment, what)
    except InfraError as error:
        return _unjudged(trajectory, error, name)
    except PosttrainError:
        raise
    except Exception as error:
        return _unjudged(trajectory, _bug(what, error), name)
    timings = {**trajectory.timings, "judge": time.perf_counter() - began}
    if verdict.status == "infra_error":
        said = InfraError(f"{what}: {verdict.feedback or dict(verdict.evidence) or 'no reason given'}")
        return replace(_unjudged(trajectory, said, name), verdict=verdict, timings=timings)
    return replace(trajectory, verdict=verdict, reward=verdict.reward if verdict.trains else None, timings=timings)


@dataclass
class _Attempt:
    """An attempt under way."""

    task: Task
    environment: Environment
    engine: Engine
    sandbox: Sandbox | None
    key: Key
    sampling: Sampling
    deadlines: Deadlines
    session: Session | None = None
    turns: list[Turn] = field(default_factory=list)
    outcome: Outcome = "finished"
    error: str = ""
    artefacts: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)

    async def begin(self, start: tuple[Trajectory, int] | None) -> None:
        """Opens the session and lays out the tokens that the policy continues."""
        with self.timed("start"), self.owned("start"):
            opening = self.environment.start(self.task, self.sandbox)
            self.session = await within(f"start of {self.name}", self.deadlines.step, opening)
        if start is None or start[1] == 0:
            tools = self.task.tools if self.session is None else self.session.tools()
            with self.timed("render"):
                prompt = self.engine.renderer.prompt(self.task.prompt, tools)
            self.turns.append(Turn(role="prompt", token_ids=tuple(prompt)))
            return
        parent, index = start
        kept = parent.turns[: index + 2]
        if len(kept) < index + 2 or kept[index].snapshot is None or self.session is None:
            raise UsageError(
                f"cannot branch from turn {index} of {parent.id}: it has no snapshot that an observation follows. "
                "Branch from an assistant turn whose session keeps snapshots, or from turn 0"
            )
        state = json.loads(kept[index].snapshot or "null")
        with self.owned("restore"):
            self.session.restore(state["session"])
            if self.sandbox is not None and state["sandbox"] is not None:
                await within(f"restore of {self.name}", self.deadlines.step, self.sandbox.restore(state["sandbox"]))
        self.turns.extend(replace(t, loss_mask=(False,) * len(t.token_ids)) for t in kept)

    def fills(self, more: int = 0) -> bool:
        """Whether the tokens so far, and ``more``, leave no room in the engine's context for one that is sampled."""
        return sum(len(t.token_ids) for t in self.turns) + more >= self.engine.max_context

    def require_room(self) -> None:
        """Raises ``NoRoom`` for a prompt that fills the context."""
        if self.fills():
            raise NoRoom(
                f"the prompt of {self.name} has {sum(len(t.token_ids) for t in self.turns)} tokens, which leave no room in a "
                f"context of {self.engine.max_context}, so the task is left out; shorten it (few_shot examples are part of it), "
                "or raise engine.max_context (the model's own limit holds too)"
            )

    async def go_on(self) -> None:
        """Samples and steps until the session is done or a budget is used up."""
        limits = self.task.limits
        while True:
            said = [t for t in self.turns if t.role == "assistant"]
            left = limits.max_tokens - sum(len(t.token_ids) for t in said)
            if left <= 0 or len(said) >= limits.max_turns:
                self.outcome, self.error = "truncated", "token budget" if left <= 0 else "turn budget"
                return
            turn = await self.sample(left, len(said))
            self.turns.append(turn)
            if turn.stop_reason == "abort":
                raise InfraError(f"turn {len(said)} of {self.name} was aborted")
            if turn.stop_reason == "length":
                self.outcome, self.error = "truncated", "context" if self.fills() else "token budget"
                return
            if self.session is None:
                if turn.malformed and self.task.tools:
                    self.outcome, self.error = "invalid", turn.malformed
                return
            if sum(len(t.tool_calls) for t in self.turns) > limits.max_tool_calls:
                self.outcome, self.error = "truncated", "tool-call budget"
                return
            if await self.step(turn, len(said) + 1 >= limits.max_turns):
                return

    async def sample(self, left: int, number: int) -> Turn:
        """The policy's next turn, read into text and tool calls."""
        request = Request(
            key=replace(self.key, turn=number),
            token_ids=tuple(t for turn in self.turns for t in turn.token_ids),
            sampling=replace(self.sampling, max_tokens=min(left, self.sampling.max_tokens)),
            stop_ids=tuple(self.engine.renderer.stop_ids),
            images=tuple(i for turn in self.turns for i in turn.images),
            keep=self.session is not None,
        )
        with self.timed("sample"):
            turn = await within(f"turn {number} of {self.name}", self.deadlines.sample, self.engine.sample(request))
        read: Turn = self.engine.renderer.read(turn)
        return read

    async def step(self, turn: Turn, is_last: bool) -> bool:
        """Shows the turn to the session and appends its answer; whether the attempt is over."""
        assert self.session is not None
        observation = await self.answer(turn)
        snapshot = await self.snapshot()
        self.turns[-1] = replace(turn, reward=observation.reward, snapshot=snapshot)
        if observation.done:
            if turn.malformed:
                self.outcome, self.error = "invalid", turn.malformed
            return True
        if is_last:  # nobody would read the answer
            self.outcome, self.error = "truncated", "turn budget"
            return True
        with self.timed("render"):
            tokens = self.engine.renderer.observation(observation.messages)
        if self.fills(len(tokens)):  # nothing could be sampled after the answer
            self.outcome, self.error = "truncated", "context"
            return True
        self.turns.append(Turn(role="observation", token_ids=tuple(tokens), images=observation.images, text=_text(observation)))
        return False

    async def answer(self, turn: Turn) -> Observation:
        """The session's answer; a tool error is shown to the policy, a call that cannot be read too."""
        assert self.session is not None
        try:
            if turn.malformed:
                raise ToolError("E_FORMAT", turn.malformed)
            with self.timed("step"), self.owned("step"):
                return await within(f"answer to {self.name}", self.deadlines.step, self.session.step(turn))
        except ToolError as error:
            call = turn.tool_calls[-1] if turn.tool_calls else None
            shown = Message(role="tool", content=str(error), tool_call_id=call.id if call else "", name=call.name if call else "")
            return Observation(messages=(shown,))

    async def snapshot(self) -> str | None:
        """The state after this turn as JSON text, where the session keeps one."""
        if self.session is None or type(self.session).snapshot is Session.snapshot:
            return None
        with self.owned("snapshot"):
            sandbox = None
            if self.sandbox is not None:
                sandbox = await within(f"snapshot of {self.name}", self.deadlines.step, self.sandbox.snapshot())
            return json.dumps({"session": self.session.snapshot(), "sandbox": sandbox}, separators=(",", ":"))

    @property
    def name(self) -> str:
        return f"{self.key.task_id}#{self.key.visit}.{self.key.attempt}"

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds to the seconds of a stage."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.timings[stage] = self.timings.get(stage, 0.0) + time.perf_counter() - began

    @contextlib.contextmanager
    def owned(self, what: str) -> Iterator[None]:
        """An exception of the environment's own code is its bug: named, never a reward."""
        try:
            yield
        except (ToolError, PosttrainError):
            raise
        except Exception as error:
            raise _bug(f"{what} of {self.environment.name} on {self.name}", error) from error


def _bug(what: str, error: Exception) -> Broken:
    where = ""
    trace = error.__traceback__
    while trace is not None:
        where = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
        trace = trace.tb_next
    return Broken(f"{what} raised {type(error).__name__}: {str(error)[:500]}{where}")


def _check(verdict: Any, environment: Environment, what: str) -> None:
    if not isinstance(verdict, Verdict):
        raise Broken(f"{what} returned a {type(verdict).__name__}; a verifier returns a Verdict")
    if isinstance(environment, Family) and not 0.0 <= verdict.reward <= 1.0:
        raise Broken(f"{what} gave the reward {verdict.reward}; families are judged in [0, 1]")


def _unjudged(trajectory: Trajectory, error: InfraError, verifier: str) -> Trajectory:
    return replace(
        trajectory,
        outcome="infra_error",
        error=str(error),
        verdict=Verdict(status="infra_error", verifier=verifier, evidence={"error": str(error)}),
        reward=None,
        metadata={**trajectory.metadata, "failure": type(error).__name__},
    )


def _text(observation: Observation) -> str:
    return "\n".join(m.content for m in observation.messages)


async def _quietly(awaitable: Any, seconds: float = 10.0) -> None:
    """Cleaning up after an engine that may be gone must not hide how the attempt ended."""
    with contextlib.suppress(InfraError):
        await within("cleaning up an attempt", seconds, awaitable)

"""Known answers instead of a policy: an engine that replays them, the check of verifiers at a run's start, and SFT rows.

``converse`` is the one way in which a scripted response meets a session without an engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from posttrain.engines._base import Request, Score
from posttrain.envs._base import Environment, Session
from posttrain.errors import InvalidRun, UsageError
from posttrain.rollout.deadlines import DEFAULT, within
from posttrain.rollout.group import all_of
from posttrain.rollout.run import _Attempt, judge, run
from posttrain.types import Key, Message, Observation, Response, Sampling, Task, ToolSpec, Trajectory, Turn

if TYPE_CHECKING:
    from posttrain.render import Renderer

_UNBOUNDED = 1 << 30  # a scripted answer is said whole: what a budget would cut says nothing about its verifier


class ScriptedEngine:
    """An engine whose attempt ``a`` says ``responses[a]``, turn by turn; past its last turn it says nothing and stops.

    What it says is tokenised by the renderer and ends in the stop token, and it keeps to no budget. It never trains.
    """

    trains = False
    max_context = _UNBOUNDED

    def __init__(self, renderer: Renderer, responses: Sequence[Response]) -> None:
        self.renderer = renderer
        self.responses = responses
        self.policy_version = 0
        self.weights_hash = "scripted"

    async def sample(self, request: Request) -> Turn:
        """The scripted turn. Raises ``UsageError`` for an attempt without a script."""
        if not 0 <= request.key.attempt < len(self.responses):
            raise UsageError(f"attempt {request.key.attempt} has no script; there are {len(self.responses)} responses")
        turns = self.responses[request.key.attempt].turns
        said = self.renderer.assistant_text(turns[request.key.turn]) if request.key.turn < len(turns) else ""
        stop = tuple(request.stop_ids or self.renderer.stop_ids)[:1]
        tokens = (*self.renderer.encode(said), *stop)
        n = len(tokens)
        return Turn(
            role="assistant",
            token_ids=tokens,
            rollout_logprobs=(0.0,) * n,
            policy_versions=(0,) * n,
            weights_hash=self.weights_hash,
            stop_reason="stop",
        )

    async def score(self, token_ids: tuple[int, ...], images: tuple[Any, ...] = (), top_k: int = 0) -> Score:
        """A script has no probabilities."""
        raise UsageError("a scripted engine has no probabilities to score with; use a model's engine")

    async def update(
        self, weights: Mapping[str, Any] | Iterable[tuple[str, Any]] | None, policy_version: int, content_hash: str
    ) -> None:
        """A script has no weights."""

    async def pause(self, mode: Literal["keep", "abort"] = "keep") -> None:
        """Nothing runs."""

    async def resume(self) -> None:
        """Nothing was paused."""

    async def abort(self, attempt_id: str) -> None:
        """Nothing is under way."""

    async def release(self, attempt_id: str) -> None:
        """Nothing is held."""


async def replay(environment: Environment, task: Task, response: Response, renderer: Renderer) -> Trajectory:
    """The judged trajectory of saying ``response``, through the same driver as any attempt."""
    roomy = replace(task, limits=replace(task.limits, max_tokens=_UNBOUNDED))
    engine = ScriptedEngine(renderer, [response])
    sampling = Sampling(temperature=0.0, max_tokens=_UNBOUNDED)
    made = await run(roomy, environment, engine, None, seed=0, visit=0, attempt=0, sampling=sampling)
    return await judge(replace(made, task=task), environment)


async def check_environments(environments: Sequence[Environment], renderer: Renderer) -> int:
    """Every known answer of every environment must be judged as known; how many were. A broken verifier stops the run here.

    Right ones must be ``ok`` with reward 1, wrong ones below 1, and neither may fail on our side. Raises ``InvalidRun``
    naming environment, verifier and answer.
    """
    number = 0
    faults: list[str] = []
    for environment in environments:
        probes = list(environment.probes())
        number += len(probes)
        said = await all_of([_fault(environment, *probe, renderer) for probe in probes])
        faults += [x for x in said if x]
    if faults:
        more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise InvalidRun(
            f"the run does not start: {'; '.join(faults[:3])}{more}. "
            "Rewards of this environment would be wrong; mend its verifier, or leave it out of the recipe"
        )
    return number


async def _fault(environment: Environment, task: Task, response: Response, is_right: bool, renderer: Renderer) -> str:
    judged = await replay(environment, task, response, renderer)
    verdict = judged.verdict
    assert verdict is not None
    who = f"verifier {verdict.verifier or type(environment.verifier).__name__} of {environment.name}"
    what = "its reference answer" if is_right else f"the wrong answer {response.note or response.turns[-1].content[:60]!r}"
    if verdict.status == "infra_error" or judged.outcome == "infra_error":
        return f"{who} failed on {what} to {task.id}: {judged.error}"
    if is_right and not (verdict.status == "ok" and verdict.reward >= 1.0 - 1e-9):
        return f"{who} judged {what} to {task.id} {verdict.status} with reward {verdict.reward:g}, not ok with 1"
    if not is_right and verdict.reward >= 1.0:
        return f"{who} judged {what} to {task.id} {verdict.status} with reward {verdict.reward:g}, not below 1"
    return ""


async def rows_of_oracles(tasks: Sequence[Task], environment: Environment, renderer: Renderer) -> list[Trajectory]:
    """Worked reference answers as SFT rows: assistant tokens train, their stop token too, with advantage 1.

    Multi-turn answers are played against a session, so a row holds what the session really answered. Raises ``UsageError``
    for an environment without an oracle.
    """
    rows = []
    for task in tasks:
        response = environment.reference(task)
        if response is None:
            raise UsageError(f"{environment.name} has no reference answers; give SFT rows of your own, or leave the warm-up out")
        rows.append(await row_of(task, response, environment, renderer))
    return rows


async def row_of(task: Task, response: Response, environment: Environment, renderer: Renderer) -> Trajectory:
    """One SFT row of a response, with the session's answers between its turns."""
    messages, tools = await worked(environment, task, response)
    turns = tuple(renderer.row((*task.prompt, *messages), tools))
    return Trajectory(task=task, turns=turns, advantage=1.0, metadata={"source": "oracle"})


async def worked(environment: Environment, task: Task, response: Response) -> tuple[tuple[Message, ...], tuple[ToolSpec, ...]]:
    """(a response's messages with the session's answers between them, the tools of the attempt); no answer to the last one."""
    session = await opened(environment, task)
    said: list[Message] = []
    answer: tuple[Message, ...] = ()
    async for turn, observation in converse(environment, task, session, response.turns):
        said += [*answer, Message(role="assistant", content=turn.text, tool_calls=turn.tool_calls)]
        answer = observation.messages
    return tuple(said), task.tools if session is None else session.tools()


async def opened(environment: Environment, task: Task) -> Session | None:
    """A fresh session of the task, None for a single turn."""
    return await within(f"start of {task.id}", DEFAULT.step, environment.start(task, None))


async def converse(
    environment: Environment, task: Task, session: Session | None, messages: Iterable[Message]
) -> AsyncIterator[tuple[Turn, Observation]]:
    """Each message as a turn without tokens, with the session's answer, tool errors shown as to a policy; until it is done.

    Without a session the first message is all there is. Raises ``Broken`` where the session's own code raises.
    """
    nobody: Any = None  # nothing is sampled, so no engine is asked
    attempt = _Attempt(task, environment, nobody, None, Key(seed=0, task_id=task.id), Sampling(), DEFAULT, session)
    for message in messages:
        turn = Turn(role="assistant", token_ids=(), text=message.content, tool_calls=message.tool_calls, stop_reason="stop")
        observation = Observation(done=True) if session is None else await attempt.answer(turn)
        yield turn, observation
        if observation.done:
            return

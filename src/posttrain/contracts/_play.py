"""A response played against its environment without a model: texts instead of tokens, the same session and verifier."""

from __future__ import annotations

from collections.abc import Sequence

from posttrain.envs._base import Environment, Session
from posttrain.errors import ToolError
from posttrain.types import Message, Observation, Response, Task, Trajectory, Turn, Verdict


async def play(environment: Environment, task: Task, response: Response) -> Trajectory:
    """The unjudged trajectory of saying ``response`` turn by turn. A session that ends early leaves the rest unsaid."""
    session = await environment.start(task, None)
    turns, done = await play_turns(session, response.turns)
    return finish(task, turns, session, done)


async def play_turns(session: Session | None, messages: Sequence[Message]) -> tuple[list[Turn], bool]:
    """(assistant and observation turns, whether the session ended)."""
    turns: list[Turn] = []
    for message in messages:
        turn = Turn(role="assistant", token_ids=(), text=message.content, tool_calls=message.tool_calls, stop_reason="stop")
        turns.append(turn)
        if session is None:
            break
        try:
            seen = await session.step(turn)
        except ToolError as fault:
            seen = Observation(messages=(Message(role="tool", content=str(fault)),))
        if seen.done:
            return turns, True
        turns.append(Turn(role="observation", token_ids=(), text="\n".join(m.content for m in seen.messages), reward=seen.reward))
    return turns, session is None


def finish(task: Task, turns: Sequence[Turn], session: Session | None, done: bool) -> Trajectory:
    """The trajectory as the verifier gets it: prompt, turns, artefacts."""
    prompt = Turn(role="prompt", token_ids=(), text="\n".join(m.content for m in task.prompt))
    artefacts = session.artefacts() if session is not None else {}
    return Trajectory(task=task, turns=(prompt, *turns), outcome="finished" if done else "truncated", artefacts=artefacts)


async def judged(environment: Environment, task: Task, response: Response) -> Verdict:
    """Plays and judges."""
    return await environment.verifier.judge(await play(environment, task, response))

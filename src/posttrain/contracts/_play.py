"""A response played against its environment without a model: texts instead of tokens, the same session and verifier."""

from __future__ import annotations

from collections.abc import Sequence

from posttrain.envs._base import Environment, Session
from posttrain.rollout.scripted import converse, opened
from posttrain.types import Message, Response, Task, Trajectory, Turn, Verdict


async def play(environment: Environment, task: Task, response: Response) -> Trajectory:
    """The unjudged trajectory of saying ``response`` turn by turn. A session that ends early leaves the rest unsaid."""
    session = await opened(environment, task)
    turns, done = await play_turns(environment, task, session, response.turns)
    return finish(task, turns, session, done)


async def play_turns(
    environment: Environment, task: Task, session: Session | None, messages: Sequence[Message]
) -> tuple[list[Turn], bool]:
    """(assistant and observation turns, whether the session ended)."""
    turns: list[Turn] = []
    done = session is None
    async for turn, seen in converse(environment, task, session, messages):
        turns.append(turn)
        done = seen.done
        if not done:
            text = "\n".join(m.content for m in seen.messages)
            turns.append(Turn(role="observation", token_ids=(), text=text, reward=seen.reward))
    return turns, done


def finish(task: Task, turns: Sequence[Turn], session: Session | None, done: bool) -> Trajectory:
    """The trajectory as the verifier gets it: prompt, turns, artefacts."""
    prompt = Turn(role="prompt", token_ids=(), text="\n".join(m.content for m in task.prompt))
    artefacts = session.artefacts() if session is not None else {}
    return Trajectory(task=task, turns=(prompt, *turns), outcome="finished" if done else "truncated", artefacts=artefacts)


async def judged(environment: Environment, task: Task, response: Response) -> Verdict:
    """Plays and judges."""
    return await environment.verifier.judge(await play(environment, task, response))

"""Talk to a run's model, or to any model that can be loaded, through the same engine that training samples with."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from posttrain.engines._base import Request
from posttrain.engines.native import Native
from posttrain.progress import CONTROL
from posttrain.recipes._live import open_engine
from posttrain.rollout.deadlines import within
from posttrain.types import Key, Message, Sampling

if TYPE_CHECKING:
    from posttrain.render import Renderer

DEADLINE = 600.0  # seconds for one answer


def model_of(source: str) -> str:
    """A run's exported model, else the name itself. Raises ``UsageError`` for a run without one."""
    if (Path(source) / "run.json").is_file():
        from posttrain.recipes.export import main as exported

        return str(exported(source)["model"])
    return source


def main(source: str, *, lines: Iterator[str], out: IO[str], temperature: float = 0.7, max_tokens: int = 256) -> dict[str, Any]:
    """Answers each of ``lines`` on ``out`` until they end or one says /exit; /clear forgets. Returns counts.

    What no longer fits the model's context is left out, oldest first; standard error says so once. Raises
    ``DeadlineExceeded`` for an answer that takes more than ten minutes.
    """
    return asyncio.run(_chat(model_of(source), lines, out, Sampling(temperature=temperature, max_tokens=max_tokens)))


async def _chat(model: str, lines: Iterator[str], out: IO[str], sampling: Sampling) -> dict[str, Any]:
    history: list[Message] = []
    turns = tokens = 0
    has_dropped = False
    began = time.monotonic()
    async with open_engine(model, Native(max_slots=4)) as engine:
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            said = line.strip()
            if said == "/exit":
                break
            if said == "/clear":
                history = []
                continue
            if not said:
                continue
            renderer = engine.renderer
            answer = min(sampling.max_tokens, engine.max_context // 2)  # what is left for it
            kept, prompt = fitted([*history, Message(role="user", content=said)], renderer, engine.max_context - answer)
            if len(prompt) >= engine.max_context:
                _note(f"that message has {len(prompt)} tokens, the model's context {engine.max_context}; say it in less")
                continue
            if len(kept) <= len(history) and not has_dropped:
                has_dropped = True
                _note(f"the talk outgrows the model's context of {engine.max_context} tokens: it forgets the oldest turns")
            history = kept
            request = Request(
                key=Key(seed=time.time_ns() % 2**32, task_id="chat", turn=turns),
                token_ids=prompt,
                sampling=sampling,
                stop_ids=renderer.stop_ids,
            )
            what = f"an answer of up to {sampling.max_tokens} tokens (ask for fewer with --max-tokens)"
            turn = renderer.read(await within(what, DEADLINE, engine.sample(request)))
            history.append(Message(role="assistant", content=turn.text))
            out.write(CONTROL.sub("\N{REPLACEMENT CHARACTER}", turn.text) + "\n")
            out.flush()
            turns, tokens = turns + 1, tokens + len(turn.token_ids)
    return {"model": model, "turns": turns, "tokens": tokens, "seconds": time.monotonic() - began}


def fitted(history: Sequence[Message], renderer: Renderer, room: int) -> tuple[list[Message], tuple[int, ...]]:
    """The messages whose prompt has at most ``room`` tokens, and that prompt: without the oldest turns, as few as need be.

    System messages and what was said last stay, even where they do not fit.
    """
    fixed = [m for m in history if m.role == "system"]
    said = [m for m in history if m.role != "system"]
    prompt = renderer.prompt((*fixed, *said))
    while len(prompt) > room and any(m.role == "user" for m in said[1:]):
        following = next(i for i, m in enumerate(said) if i and m.role == "user")
        said = said[following:]
        prompt = renderer.prompt((*fixed, *said))
    return [*fixed, *said], tuple(prompt)


def _note(text: str) -> None:
    """A word to the person, apart from what the model says."""
    print(f"posttrain: {text}", file=sys.stderr, flush=True)

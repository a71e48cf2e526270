"""Talk to a run's model, or to any model that can be loaded, through the same engine that training samples with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from posttrain.engines._base import Request
from posttrain.engines.native import Native
from posttrain.progress import CONTROL
from posttrain.recipes._live import open_engine
from posttrain.types import Key, Message, Sampling

DEADLINE = 600.0  # seconds for one answer


def model_of(source: str) -> str:
    """A run's exported model, else the name itself. Raises ``UsageError`` for a run without one."""
    if (Path(source) / "run.json").is_file():
        from posttrain.recipes.export import main as exported

        return str(exported(source)["model"])
    return source


def main(source: str, *, lines: Iterator[str], out: IO[str], temperature: float = 0.7, max_tokens: int = 256) -> dict[str, Any]:
    """Answers each of ``lines`` on ``out`` until they end or one says /exit; /clear forgets. Returns counts."""
    return asyncio.run(_chat(model_of(source), lines, out, Sampling(temperature=temperature, max_tokens=max_tokens)))


async def _chat(model: str, lines: Iterator[str], out: IO[str], sampling: Sampling) -> dict[str, Any]:
    history: list[Message] = []
    turns = tokens = 0
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
            history.append(Message(role="user", content=said))
            renderer = engine.renderer
            request = Request(
                key=Key(seed=time.time_ns() % 2**32, task_id="chat", turn=turns),
                token_ids=renderer.prompt(tuple(history)),
                sampling=sampling,
                stop_ids=renderer.stop_ids,
            )
            async with asyncio.timeout(DEADLINE):
                turn = renderer.read(await engine.sample(request))
            history.append(Message(role="assistant", content=turn.text))
            out.write(CONTROL.sub("\N{REPLACEMENT CHARACTER}", turn.text) + "\n")
            out.flush()
            turns, tokens = turns + 1, tokens + len(turn.token_ids)
    return {"model": model, "turns": turns, "tokens": tokens, "seconds": time.monotonic() - began}

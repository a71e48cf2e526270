"""Rows for supervised fine-tuning: OpenAI messages, or a prompt and its completion, from JSON lines, JSON or parquet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.datasets.files import column, read_rows
from posttrain.datasets.messages import messages, tools
from posttrain.errors import UsageError
from posttrain.types import Message, Task, Trajectory, Turn

if TYPE_CHECKING:
    from posttrain.render import Renderer


@dataclass(frozen=True, kw_only=True)
class Jsonl:
    """A file of rows, each with ``messages`` (and ``tools``) or with a ``prompt`` and a ``completion``.

    ``prompt`` and ``completion`` name the columns; either may hold text or a list of messages. Assistant messages train, their
    stop token too; one with ``"weight": 0`` does not.
    """

    data: Path
    prompt: str = "prompt"
    completion: str = "completion"

    def rows(self, renderer: Renderer) -> Iterator[Trajectory]:
        """Trajectories nobody sampled, with advantage 1, in the file's order. Raises ``UsageError`` naming file and line."""
        for place, row in read_rows(self.data):
            yield self._row(place, row, renderer)

    def _row(self, place: str, row: dict[str, Any], renderer: Renderer) -> Trajectory:
        if "messages" in row:
            said = messages(row["messages"], place)
            weights = [m.get("weight", 1) for m in row["messages"] if m["role"] == "assistant"]
        else:
            said = (*_side(column(row, self.prompt, place, "prompt"), "user", place),)
            said += _side(column(row, self.completion, place, "completion"), "assistant", place)
            weights = []
        first = next((i for i, m in enumerate(said) if m.role == "assistant"), None)
        if not first:
            raise UsageError(f"{place} has no assistant message after a prompt, so it has nothing to train on")
        last = max(i for i, m in enumerate(said) if m.role == "assistant")
        offered = tools(row.get("tools"), place)
        try:
            turns = renderer.row(said[: last + 1], offered)
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from error
        name = f"data/{self.data.stem}"
        digest = hashlib.sha256(json.dumps(row, sort_keys=True, ensure_ascii=True, default=str).encode()).hexdigest()[:16]
        task = Task(id=f"{name}/{digest}", environment=name, prompt=said[:first], tools=offered, metadata={"place": place})
        return Trajectory(task=task, turns=_weighed(turns, weights), advantage=1.0, metadata={"source": "data"})


def _side(value: Any, role: Any, place: str) -> tuple[Message, ...]:
    if isinstance(value, str):
        return (Message(role=role, content=value),)
    return messages(value, place)


def _weighed(turns: tuple[Turn, ...], weights: list[Any]) -> tuple[Turn, ...]:
    left = iter(weights)
    return tuple(
        replace(t, loss_mask=(False,) * len(t.token_ids)) if t.role == "assistant" and next(left, 1) == 0 else t for t in turns
    )

"""Rows become trajectories nobody sampled, through the renderer of a real template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.datasets.jsonl import Jsonl
from posttrain.errors import UsageError
from posttrain.render import Renderer
from posttrain.types import Message


@pytest.fixture(scope="module")
def renderer(tiny_model: Path) -> Renderer:
    from transformers import AutoTokenizer

    return Renderer(AutoTokenizer.from_pretrained(tiny_model))


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_messages_and_pairs_give_the_same_row(tmp_path: Path, renderer: Renderer) -> None:
    chat = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is 4."}]
    path = write(
        tmp_path / "a.jsonl",
        {"messages": chat},
        {"prompt": "2+2?", "completion": "It is 4."},
        {"prompt": chat[:1], "completion": chat[1:]},
    )
    rows = list(Jsonl(data=path).rows(renderer))
    assert len({r.token_ids for r in rows}) == 1 and len({r.task.id for r in rows}) == 3
    assert rows[0].task.prompt == (Message(role="user", content="2+2?"),) and rows[0].advantage == 1.0
    assert rows[0].turns == renderer.row([Message(role="user", content="2+2?"), Message(role="assistant", content="It is 4.")])
    assert rows[0].turns[1].mask[-1] and rows[0].turns[1].token_ids[-1] in renderer.stop_ids
    assert rows[0].task.metadata["place"] == f"{path}, line 1"


def test_many_turns_weights_and_a_trailing_question(tmp_path: Path, renderer: Renderer) -> None:
    chat = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "first", "weight": 0},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "second"},
        {"role": "user", "content": "unanswered"},
    ]
    (row,) = Jsonl(data=write(tmp_path / "a.jsonl", {"messages": chat})).rows(renderer)
    said = [t for t in row.turns if t.role == "assistant"]
    assert [any(t.mask) for t in said] == [False, True] and said[1].text == "second"
    assert row.turns[-1] is said[1]


def test_columns_by_other_names(tmp_path: Path, renderer: Renderer) -> None:
    path = write(tmp_path / "a.jsonl", {"question": "2+2?", "reply": "4"})
    (row,) = Jsonl(data=path, prompt="question", completion="reply").rows(renderer)
    assert row.turns[-1].text == "4"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "x", "completions": "y"}, "has no 'completion'. Did you mean 'completions'?"),
        ({"messages": [{"role": "user", "content": "x"}]}, "no assistant message after a prompt"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "no assistant message after a prompt"),
    ],
)
def test_faults_name_the_line(tmp_path: Path, renderer: Renderer, row: dict[str, Any], says: str) -> None:
    path = write(tmp_path / "a.jsonl", {"prompt": "a", "completion": "b"}, row)
    with pytest.raises(UsageError) as caught:
        list(Jsonl(data=path).rows(renderer))
    assert str(caught.value).startswith(f"{path}, line 2") and says in str(caught.value)

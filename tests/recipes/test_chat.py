"""Talking for longer than the model remembers, and longer than anybody waits."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

from posttrain.engines.native.engine import NativeEngine
from posttrain.errors import DeadlineExceeded
from posttrain.models.load import load_renderer
from posttrain.recipes import chat
from posttrain.types import Message


def test_a_long_talk_goes_on_and_says_once_that_it_forgets(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = [f"Tell me more about the number {n}, please. " + "It is a long story. " * 12 for n in range(12)]
    out = io.StringIO()
    result = chat.main(str(tiny_model), lines=iter(said), out=out, temperature=0.0, max_tokens=48)
    assert result["turns"] == 12 and result["tokens"] > 0
    notes = capsys.readouterr().err
    assert notes.count("posttrain: the talk outgrows the model's context of ") == 1


def test_a_message_longer_than_the_context_is_sent_back(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = chat.main(str(tiny_model), lines=iter(["word " * 4000, "Hello."]), out=io.StringIO(), max_tokens=4)
    assert result["turns"] == 1, "and the next one is answered"
    assert "say it in less" in capsys.readouterr().err


def test_the_oldest_turns_go_first_and_the_system_message_stays(tiny_model: Path) -> None:
    renderer = load_renderer(tiny_model)
    system = Message(role="system", content="Be brief.")
    talk = [Message(role=("user", "assistant")[n % 2], content=f"message {n}") for n in range(7)]  # type: ignore[arg-type]
    whole = renderer.prompt((system, *talk))
    assert chat.fitted([system, *talk], renderer, len(whole)) == ([system, *talk], tuple(whole))
    kept, prompt = chat.fitted([system, *talk], renderer, len(whole) - 1)
    assert kept == [system, *talk[2:]] and prompt == tuple(renderer.prompt(tuple(kept)))
    assert chat.fitted([system, *talk], renderer, 1)[0] == [system, talk[-1]]


def test_an_answer_that_never_comes_has_a_name(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stuck(self: NativeEngine, request: Any) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(NativeEngine, "sample", stuck)
    monkeypatch.setattr(chat, "DEADLINE", 0.05)
    with pytest.raises(DeadlineExceeded, match=r"an answer of up to 256 tokens \(.*--max-tokens\) did not finish within 0\.05 s"):
        chat.main(str(tiny_model), lines=iter(["Hello."]), out=io.StringIO())

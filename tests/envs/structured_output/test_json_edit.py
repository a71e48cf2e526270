"""Changes to an object, carried out a second time by a reader of the sentences."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from posttrain.envs.structured_output.json_edit import JsonEdit
from posttrain.types import Task


def carried_out(task: Task) -> dict[str, Any]:
    """The object of the prompt after the changes that the prompt asks for, read from its text alone."""
    text = task.prompt[0].content
    at = text.index("{")
    now, end = json.JSONDecoder().raw_decode(text[at:])
    edits = text[:at] + text[at + end :]
    pattern = (
        r"Remove (\w+)\.|Rename (\w+) to (\w+)\.|Add (\w+) with the value of (\w+)\.|Increase (\w+) by (\d+)\."
        r'|Swap the values of (\w+) and (\w+)\.|Set (\w+) to ("[^"]*"|\d+)\.|Add (\w+) with the value (\d+)\.'
    )
    done = 0
    for match in re.finditer(pattern, edits):
        removed, old, new, copy, source, up, by, a, b, key, value, added, amount = match.groups()
        done += 1
        if removed:
            del now[removed]
        elif old:
            now[new] = now.pop(old)
        elif copy:
            now[copy] = now[source]
        elif up:
            now[up] += int(by)
        elif a:
            now[a], now[b] = now[b], now[a]
        elif key:
            now[key] = json.loads(value)
        else:
            now[added] = int(amount)
    assert done >= task.level + 1
    return now


@pytest.mark.parametrize("level", range(10))
def test_the_answer_is_the_object_after_the_changes(level: int) -> None:
    for seed in range(60):
        task = JsonEdit().generate(seed, level)
        assert carried_out(task) == task.answer
        assert task.answer != task.private["start"]

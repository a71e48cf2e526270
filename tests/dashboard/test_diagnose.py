"""What ``diagnose`` tells to change can be changed: every option that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from posttrain.dashboard import diagnose
from posttrain.envs.rows import Rows
from posttrain.recipes.rlvr import Rlvr

ELSEWHERE = {"level", "limits"}  # an option of environments, a field of tasks
NAMED = set(re.findall(r"(?<!`)`([a-z_]+(?:\.[a-z_]+)*)`(?!`)", Path(diagnose.__file__ or "").read_text())) - ELSEWHERE


@pytest.mark.parametrize("name", sorted(NAMED))
def test_an_option_that_is_named_exists(name: str) -> None:
    found: object = Rlvr(rows=Rows())
    for part in name.split("."):
        found = getattr(found, part)


def test_options_are_named() -> None:
    assert len(NAMED) >= 8

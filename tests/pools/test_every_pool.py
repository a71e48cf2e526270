"""What every task pool must satisfy, over all that are listed: a new file is tested with no edit here."""

from __future__ import annotations

import pytest

from posttrain import plugins
from posttrain.contracts import pools


@pytest.mark.parametrize(
    "part", [pools.draws, pools.repeats, pools.restores, pools.small_data, pools.refuses], ids=lambda p: p.__name__
)
@pytest.mark.parametrize("name", plugins.names("pools"))
def test_every_pool(name: str, part: object) -> None:
    assert callable(part) and list(part(plugins.build("pools", name))) == []


@pytest.mark.parametrize("name", plugins.names("pools"))
def test_the_whole_gate(name: str) -> None:
    assert pools.check(plugins.build("pools", name)) == []

"""A stream of numbered tasks, and groups with chosen results."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from posttrain.contracts.pools import Numbers, group


@pytest.fixture
def toy() -> SimpleNamespace:
    return SimpleNamespace(Numbers=Numbers, group=group)

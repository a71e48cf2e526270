"""Batches for the tests of losses: rows of given lengths with random fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from posttrain.contracts._batches import build
from posttrain.losses._base import Batch


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return build

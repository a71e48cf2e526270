"""Options of a recipe that are numbers, refused where they make no sense before anything is loaded or written."""

from __future__ import annotations

import math
from typing import Any


def require_at_least(options: Any, **least: float) -> None:
    """Raises ``ValueError`` naming the first of ``options``' fields that is not a finite number of at least ``least``."""
    for name, bound in least.items():
        value = getattr(options, name)
        if not (math.isfinite(value) and value >= bound):
            raise ValueError(f"{name} is {value}; it must be a finite number of at least {bound:g}")

"""How small a drop a paired evaluation can see: before it is run, and from what it showed."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from posttrain.errors import EXIT_OK, UsageError
from posttrain.evals.statistics import paired_power

# Pass rates of tasks spread like Beta(2.2, 0.6): most are nearly always solved, some hardly ever, the mean is 0.79.
BETA = (2.2, 0.6)
ALPHA = 0.05
TARGET = 0.8  # the power that "enough" means


def sampling_variance() -> float:
    """E[p (1 - p)] of one sample of one task under ``BETA``."""
    a, b = BETA
    return a * b / ((a + b) * (a + b + 1))


def standard_error(items: int, samples: int) -> float:
    """Of the paired mean difference when nothing changed: only sampling noise of the two arms is left."""
    return math.sqrt(2 * sampling_variance() / (samples * items))


def inflation() -> float:
    """Margin in standard errors that a design needs: the one-sided bound's distance plus that of the power."""
    normal = NormalDist()
    return normal.inv_cdf(1 - ALPHA) + normal.inv_cdf(TARGET)


def items_needed(items: int, observed_error: float, margin: float) -> int:
    """Tasks of the same kind at which a margin shows with power 0.8, from the standard error seen at ``items`` tasks."""
    return max(1, math.ceil(items * (inflation() * observed_error / margin) ** 2))


def main(items: int, samples: int, margin: float) -> dict[str, Any]:
    """The answer of ``posttrain eval power``: power of items x samples for a drop of ``margin``, and what would be enough.

    Raises UsageError for a design that cannot be. The result is JSON-able; ``text`` is for people.
    """
    if items < 2 or samples < 1 or not 0 < margin < 1:
        raise UsageError(
            f"a design of {items} items x {samples} samples with margin {margin} cannot be planned; "
            "give at least 2 items, at least 1 sample, and a margin between 0 and 1 such as 0.03"
        )
    error = standard_error(items, samples)
    power = paired_power(error, margin, alpha=ALPHA)
    enough_items = items_needed(items, error, margin)
    enough_samples = max(1, math.ceil(samples * (inflation() * error / margin) ** 2))
    smallest = inflation() * error
    text = (
        f"{items} tasks x {samples} samples, paired, one-sided {ALPHA:.0%}: a drop of {100 * margin:g} points is seen with "
        f"probability {power:.2f}.\n"
        f"Smallest drop seen with probability {TARGET:g}: {100 * smallest:.1f} points.\n"
        f"For {100 * margin:g} points: {enough_items} tasks x {samples} samples, or {items} tasks x {enough_samples} samples.\n"
        f"Assumes tasks of mixed difficulty (pass rates like Beta{BETA}) and independent tasks; at temperature 0 more samples "
        "add nothing, and templates that react alike need more tasks."
    )
    return {
        "items": items,
        "samples": samples,
        "margin": margin,
        "alpha": ALPHA,
        "power": power,
        "smallest_drop": smallest,
        "items_needed": enough_items,
        "samples_needed": enough_samples,
        "text": text,
        "exit_code": EXIT_OK,
    }

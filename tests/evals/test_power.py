"""Power: against simulation, and bad designs."""

from __future__ import annotations

import numpy as np
import pytest

from posttrain.errors import UsageError
from posttrain.evals import power


def simulated(items: int, samples: int, drop: float, trials: int = 3000) -> float:
    """Share of simulated experiments whose one-sided 5 % z test sees the drop."""
    rng = np.random.default_rng(3)
    p = rng.beta(*power.BETA, size=(trials, items))
    before = rng.binomial(samples, p) / samples
    after = rng.binomial(samples, np.clip(p - drop, 0, 1)) / samples
    d = after - before
    return float((d.mean(1) + 1.645 * d.std(1, ddof=1) / np.sqrt(items) < 0).mean())


@pytest.mark.parametrize(("items", "samples", "margin"), [(100, 8, 0.05), (200, 1, 0.03), (200, 8, 0.03), (300, 8, 0.03)])
def test_power_agrees_with_simulation(items: int, samples: int, margin: float) -> None:
    # A clipped drop is a little smaller than asked for, so simulation may lie a little lower.
    assert power.main(items, samples, margin)["power"] == pytest.approx(simulated(items, samples, margin), abs=0.06)


def test_more_tasks_and_more_samples_see_more() -> None:
    base = power.main(200, 4, 0.03)
    assert power.main(400, 4, 0.03)["power"] > base["power"]
    assert power.main(200, 8, 0.03)["power"] > base["power"]
    enough = power.main(base["items_needed"], 4, 0.03)
    assert enough["power"] == pytest.approx(0.8, abs=0.01)
    assert power.main(200, base["samples_needed"], 0.03)["power"] >= 0.8
    assert power.main(200, 4, base["smallest_drop"])["power"] == pytest.approx(0.8, abs=1e-6)
    assert base["exit_code"] == 0 and "200 tasks x 4 samples" in base["text"]


@pytest.mark.parametrize(("items", "samples", "margin"), [(1, 8, 0.03), (100, 0, 0.03), (100, 8, 0.0), (100, 8, 3.0)])
def test_impossible_designs_are_refused(items: int, samples: int, margin: float) -> None:
    with pytest.raises(UsageError, match="cannot be planned"):
        power.main(items, samples, margin)

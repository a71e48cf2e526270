"""The one table of healthy ranges: report and diagnosis read it, so they cannot disagree.

Ranges are rules of thumb of the field for policy-gradient training with group baselines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Where a figure is healthy; None for an open end."""

    low: float | None = None
    high: float | None = None

    def holds(self, figure: float) -> bool:
        """Whether the figure lies in it."""
        return (self.low is None or figure >= self.low) and (self.high is None or figure <= self.high)

    def __str__(self) -> str:
        """For people: "0.02 to 2.5", "above 0.2", "below 20", "none"; "" for no range."""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"above {self.low:g}"
        return "" if self.high is None else f"below {self.high:g}" if self.high else "none"


ANY = Range()
HEALTHY: Mapping[str, Range] = {  # by the name under which a figure is written
    "mixed_groups": Range(low=0.2),
    "entropy": Range(low=0.02, high=2.5),
    "logprob_gap": Range(high=0.05),
    "grad_norm": Range(high=20.0),
    "truncated": Range(high=0.05),
    "malformed": Range(high=0.15),
    "clip_fraction": Range(high=0.2),
    "infra_errors": Range(high=0.0),  # attempts of one step
    "infra_share": Range(high=0.02),  # of all attempts of the run
    "reward_gained": Range(low=0.0),
    "rehearsal_loss": Range(high=1.0),
}

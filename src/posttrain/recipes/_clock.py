"""How long a run has worked, and how many more steps a time budget has room for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posttrain.store.run_dir import RunDir

CALIBRATION = 3  # RLVR steps that are timed before the rest of a time budget is turned into a number of steps
RECENT = 10  # steps that are looked at when that number is corrected, at checkpoints and at its end
MIXED = 0.6  # share of mixed groups that is expected at most
ENDING = 8.0  # seconds for export and report


class Clock:
    """How long a run has worked, over all of its sittings, in seconds."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.began = time.monotonic()
        self.earlier = float(run.info.get("seconds", 0.0))

    @property
    def seconds(self) -> float:
        """Seconds worked so far."""
        return self.earlier + time.monotonic() - self.began

    def told(self, minutes: float, steps: int) -> str:
        """What the budget comes to, for people."""
        spent = f"after {self.seconds / 60:.1f} minutes"
        if self.seconds > 60 * minutes:
            return f"{spent} the budget of {minutes:g} is spent: {steps} RLVR steps, and the last evaluation"
        return f"{spent}: {steps} RLVR steps fit into {minutes:g}"

    def steps_that_fit(self, minutes: float, most: int) -> int:
        """All RLVR steps that the budget allows, by what the latest of them took; at least those that were done.

        A step takes longer once more groups are mixed, since only those train: the training time of the first few is scaled
        to ``MIXED``. The last evaluation, the checkpoints and the export are left room.
        """
        rows = self.run.metrics()
        done = [row for row in rows if row["stage"] == "rlvr"]
        recent = done[-RECENT:]
        rollout, training = (sum(row[f"{part}_seconds"] for row in recent) / len(recent) for part in ("rollout", "train"))
        if len(done) <= CALIBRATION:
            training *= MIXED / max(sum(row.get("mixed_groups", 0.0) for row in recent) / len(recent), 0.1 / CALIBRATION)
        saving = self.run.info.get("save_seconds", 0.0)
        looks = [row["seconds"] for row in rows if row["stage"] in ("before", "after_sft")]
        left = minutes * 60 - self.seconds - max(looks, default=0.0) - 2 * saving - ENDING
        return max(len(done), min(most, len(done) + int(left / (1.05 * (rollout + training)))))

"""Points of a run to come back to: checkpoints that are written, kept and read back, and the room they take."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

from posttrain.errors import HostError
from posttrain.train.checkpoint import problem
from posttrain.train.publish import publish

if TYPE_CHECKING:
    from posttrain.pools._base import OpenPool
    from posttrain.progress import Progress
    from posttrain.recipes._clock import Clock
    from posttrain.recipes._live import Live
    from posttrain.store.run_dir import RunDir

KEPT = 2  # checkpoints of RLVR that stay; while the next is written there is one more


def save_point(
    run: RunDir, stage: str, step: int, live: Live, pool: OpenPool, result: dict[str, Any] | None, clock: Clock
) -> None:
    """Writes a checkpoint, then commits the step that it holds; of RLVR's only the last ``KEPT`` stay."""
    name = f"{stage}-{step:05d}"
    began = time.monotonic()
    live.policy.save(run.checkpoints / name, extra={"pool": pool.state()})
    run.note(save_seconds=time.monotonic() - began, seconds=clock.seconds)
    run.commit(stage, step, result=result, checkpoint=name)
    for old in sorted(run.checkpoints.glob("rlvr-*"))[:-KEPT]:
        shutil.rmtree(old)


def require_space(run: RunDir, live: Live, *, warm_up: bool, saves: int) -> None:
    """Refuses to begin a run whose checkpoints and model the disk cannot hold. Raises HostError.

    ``warm_up``: whether its checkpoint will be there; ``saves``: how many RLVR writes in all. A run that goes on is not looked
    at: part of what it writes is there already.
    """
    if run.commits():
        return
    exported = sum(weight.nbytes for weight in live.policy.weights().values())
    one = live.policy.checkpoint_bytes + (exported if live.policy.reference is not None else 0)
    kept, most = warm_up + min(saves, KEPT), warm_up + min(saves, KEPT + 1)
    need, free = max(kept * one + exported, most * one), shutil.disk_usage(run.path).free
    if free < need:
        raise HostError(
            f"the disk of {run.path} has {free / 1e9:.1f} GB free, and this run takes up to {need / 1e9:.1f} GB "
            f"({most} checkpoints of {one / 1e9:.1f} GB at once, and the model); free some, or choose another disk with --out"
        )


async def go_back(run: RunDir, live: Live, pool: OpenPool, progress: Progress) -> tuple[str, int]:
    """Puts policy and pool where the newest whole checkpoint left them; ("", -1) for a run that has none.

    What was committed after a checkpoint that proves damaged is undone with it.
    """
    commits = [c for c in run.commits() if "checkpoint" in c]
    for commit in reversed(commits):
        damage = problem(run.checkpoints / commit["checkpoint"])
        if not damage:
            extra = live.policy.restore(run.checkpoints / commit["checkpoint"])
            pool.restore(extra["pool"])
            await publish(live.policy, live.engine)
            progress.log(f"going on from {commit['checkpoint']}")
            return commit["stage"], commit["step"]
        progress.log(f"skipped a damaged checkpoint: {damage}")
        earlier = [c["step"] for c in commits if c["stage"] == commit["stage"] and c["step"] < commit["step"]]
        run.rewind(commit["stage"], max(earlier, default=None))
        for later in ("after_sft", "after_rl") if commit["stage"] == "warm_up" else ("after_rl",):
            run.rewind(later, None)
    return "", -1

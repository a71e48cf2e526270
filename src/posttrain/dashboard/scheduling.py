"""Where a run's time and its failures go, from its event log: the slowest family, the item that stuck, the commonest status."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

WHOLE = ("attempt", "judge", "queue")  # these hold the other stages: sampling, steps, admission to a sandbox ...


def scheduling(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """``slowest_family``, ``family_seconds`` (mean of an attempt and its verdict), ``slowest_stage``; ``stuck`` (the last wait
    that passed its deadline, "" for none) and ``num_stuck``; ``commonest_status`` and its ``status_share``; ``sandboxes_lost``.

    Empty where no attempt is on the log.
    """
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    stages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    statuses: Counter[str] = Counter()
    stuck: list[str] = []
    lost = 0
    for event in events:
        if event.get("kind") == "failure" and event.get("failure") == "DeadlineExceeded":
            stuck.append(str(event["what"]))
        if event.get("kind") != "attempt":
            continue
        family = str(event.get("environment", str(event["attempt"]).rpartition("#")[0].rpartition("/")[0]))
        timings = event.get("timings", {})
        seconds[family].append(timings.get("attempt", 0.0) + timings.get("judge", 0.0))
        stages[family].update({stage: s for stage, s in timings.items() if stage not in WHOLE})
        statuses[str(event["status"])] += 1
        lost += len(event.get("sandboxes_lost", ()))
    if not seconds:
        return {}
    slowest = max(seconds, key=lambda family: sum(seconds[family]) / len(seconds[family]))
    ((status, count),) = statuses.most_common(1)
    return {
        "slowest_family": slowest,
        "family_seconds": sum(seconds[slowest]) / len(seconds[slowest]),
        "slowest_stage": max(stages[slowest], key=stages[slowest].__getitem__, default=""),
        "stuck": stuck[-1] if stuck else "",
        "num_stuck": len(stuck),
        "commonest_status": status,
        "status_share": count / statuses.total(),
        "sandboxes_lost": lost,
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """The same for a reader."""
    if not found:
        return []
    stage = f", most of it in {found['slowest_stage']!r}" if found["slowest_stage"] else ""
    return [
        f"slowest family: {found['slowest_family']}, {found['family_seconds']:.2f} s an attempt{stage}",
        f"stuck: {found['stuck']} ({found['num_stuck']} in all)" if found["stuck"] else "stuck: no wait passed its deadline",
        f"commonest status: {found['commonest_status']}, {found['status_share']:.0%} of the attempts",
        *([f"sandboxes lost: {found['sandboxes_lost']}, each tried again"] if found["sandboxes_lost"] else []),
    ]

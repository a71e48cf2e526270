"""Why a reward stalls: figures of a run beside their healthy range, and the option to change where one is outside.

Reads only the store. Each figure says what it means, so that a reader can disagree with its range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from posttrain.dashboard.healthy import HEALTHY, Range
from posttrain.dashboard.scheduling import lines as scheduling_lines
from posttrain.dashboard.scheduling import scheduling
from posttrain.errors import UsageError
from posttrain.store.run_dir import RunDir

STAGE = "rlvr"
RECENT = 5  # steps that count as "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One figure. ``low`` and ``high`` bound the healthy range, None for an open end."""

    name: str
    figure: float
    low: float | None
    high: float | None
    meaning: str
    change: str  # the option to change, "" while healthy

    @property
    def healthy(self) -> bool:
        """Whether the figure lies in its range."""
        return Range(low=self.low, high=self.high).holds(self.figure)


def diagnose(run: RunDir) -> list[Finding]:
    """Findings of a run's RLVR stage, the unhealthy ones first. Raises ``UsageError`` where there is no such step yet."""
    rows = run.metrics(STAGE)
    if not rows:
        raise UsageError(f"{run.path} has no {STAGE} step yet; diagnose reads those, so run at least one")
    now = rows[-RECENT:]
    found = [f for f in (*_signal(run, rows, now), *_answers(rows, now), *_stability(now)) if f is not None]
    return sorted(found, key=lambda f: f.healthy)


def _signal(run: RunDir, rows: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[Finding | None]:
    mixed, passed = _mean(now, "mixed_groups"), _mean(now, "pass_rate")
    if passed is not None and passed > 0.5:
        cure = "most tasks are solved: raise the environments' `level`, or stop here"
    else:
        cure = "most tasks fail every time: raise `warm_up.steps`, lower the environments' `level`, or raise `group_size`"
    first, last = _mean(rows[: max(len(rows) // 3, 1)], "reward"), _mean(rows[-max(len(rows) // 3, 1) :], "reward")
    gain = None if first is None or last is None or len(rows) < 3 else last - first
    return [
        _finding("mixed groups", mixed, "mixed_groups", "share of groups whose attempts differ; the others teach nothing", cure),
        _finding(
            "reward gained",
            gain,
            "reward_gained",
            "mean reward of the last third of the steps less that of the first; the pool makes tasks harder as they are solved",
            "raise `train.lr` (up to 4x) or `tasks_per_step`; look at mixed groups first",
        ),
    ]


def _answers(rows: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[Finding | None]:
    lost, sampled = sum(r.get("infra_errors", 0) for r in rows), sum(r.get("attempts", 0) for r in rows)
    return [
        _finding(
            "malformed answers",
            _mean(now, "malformed"),
            "malformed",
            "share of attempts whose format the verifier could not read",
            "raise `warm_up.steps`, or say the format more plainly in the prompt",
        ),
        _finding(
            "truncated",
            _mean(now, "truncated"),
            "truncated",
            "share of attempts that ran out of their token or turn budget",
            "raise the task's `limits` (`rows.max_tokens` for your own rows), or reward brevity",
        ),
        _finding(
            "infrastructure failures",
            lost / sampled if sampled else None,
            "infra_share",
            "share of attempts lost to our side; they never count as a reward",
            "read events.jsonl: it names every failure and what it waited for",
        ),
    ]


def _stability(now: Sequence[Mapping[str, Any]]) -> list[Finding | None]:
    return [
        _finding(
            "entropy",
            _mean(now, "entropy"),
            "entropy",
            "nats a sampled token; near 0 the policy no longer explores, far above it babbles",
            "too low: lower `train.lr`, raise `loss.eps_high` or `temperature`; too high: lower `temperature`",
        ),
        _finding(
            "logprob gap",
            _mean(now, "logprob_gap"),
            "logprob_gap",
            "mean |rollout - policy logprob| before the update; what is trained is not what was sampled when it is large",
            'set `precision = "exact"`',
        ),
        _finding(
            "clip fraction",
            _mean(now, "clip_fraction"),
            "clip_fraction",
            "share of tokens whose ratio left the clip range",
            "lower `train.lr`",
        ),
        _finding(
            "gradient norm",
            _mean(now, "grad_norm"),
            "grad_norm",
            "before clipping; a steady rise announces a collapse",
            "lower `train.lr`, or `train.max_grad_norm`",
        ),
    ]


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    values = [float(r[key]) for r in rows if key in r]
    return sum(values) / len(values) if values else None


def _finding(name: str, figure: float | None, metric: str, meaning: str, change: str) -> Finding | None:
    if figure is None:
        return None
    healthy = HEALTHY[metric]
    cure = "" if healthy.holds(figure) else change
    return Finding(name=name, figure=figure, low=healthy.low, high=healthy.high, meaning=meaning, change=cure)


def main(path: str, *, as_json: bool = False) -> dict[str, Any]:
    """The answer of ``posttrain diagnose RUN``: ``findings``, ``healthy``, ``scheduling``, ``text``."""
    run = RunDir.open(path)
    findings, scheduled = diagnose(run), scheduling(run.events())
    lines = []
    for f in findings:
        span = f"{'' if f.low is None else f'{f.low:g}'}..{'' if f.high is None else f'{f.high:g}'}"
        lines.append(f"{'ok     ' if f.healthy else 'LOOK   '} {f.name:<24} {f.figure:9.4f}   healthy {span:<10} {f.meaning}")
        if f.change:
            lines.append(f"        -> {f.change}")
    if all(f.healthy for f in findings):
        lines.append("Nothing stands out.")
    lines += scheduling_lines(scheduled)
    return {
        "run": str(path),
        "healthy": all(f.healthy for f in findings),
        "findings": [asdict(f) | {"healthy": f.healthy} for f in findings],
        "scheduling": scheduled,
        "text": "\n".join(lines),
    }

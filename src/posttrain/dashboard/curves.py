"""The report's charts: rewards and pass rates by family over the steps, and panels that say whether training is stable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.dashboard.charts import Series, line_chart, number
from posttrain.dashboard.healthy import ANY, HEALTHY, Range
from posttrain.dashboard.markup import Html, el, join

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One figure over the steps, and what it means; its healthy range is that of ``HEALTHY``."""

    metric: str
    title: str
    meaning: str

    @property
    def healthy(self) -> Range:
        """Where it should be."""
        return HEALTHY.get(self.metric, ANY)

    @property
    def text(self) -> str:
        """What it means, and its range."""
        return f"{self.meaning} Healthy: {self.healthy}." if str(self.healthy) else self.meaning


PANELS = (
    Panel(
        metric="mixed_groups",
        title="Mixed groups",
        meaning="Share of groups in which some attempts pass and others fail. Only these teach.",
    ),
    Panel(
        metric="entropy",
        title="Entropy",
        meaning="Nats per sampled token. Falls as the policy grows sure; near 0 it explores no more.",
    ),
    Panel(
        metric="logprob_gap",
        title="Logprob gap, mean",
        meaning="How far the sampling engine and the trainer disagree about the same tokens.",
    ),
    Panel(
        metric="logprob_gap_max",
        title="Logprob gap, max",
        meaning="The worst single token of the step. A rare spike is rounding; a rising floor is stale weights.",
    ),
    Panel(
        metric="grad_norm",
        title="Gradient norm",
        meaning="Before clipping. A steady rise announces a collapse; level is well.",
    ),
    Panel(
        metric="truncated",
        title="Truncated",
        meaning="Share of attempts cut off by a token, turn or tool budget.",
    ),
    Panel(
        metric="malformed",
        title="Malformed",
        meaning="Share of answers whose format could not be read. Falls first when learning works.",
    ),
    Panel(
        metric="clip_fraction",
        title="Clipped tokens",
        meaning="Share of tokens whose ratio left the clip range, so that they teach nothing.",
    ),
    Panel(metric="ref_kl", title="KL to the reference", meaning="Nats a token, where the loss holds the policy near its start."),
    Panel(
        metric="infra_errors",
        title="Infrastructure failures",
        meaning="Attempts lost to our side. Never a reward: retried, then left out.",
    ),
    Panel(metric="loss", title="Loss", meaning="Of a policy gradient it hovers around 0 and says little; watch the reward."),
    Panel(
        metric="rehearsal_loss",
        title="Rehearsal loss",
        meaning="On worked rows that were learnt before. A rise: the policy drifts from what it could.",
    ),
    Panel(metric="tokens_per_second", title="Sampling speed", meaning="Sampled tokens per second of the rollout."),
)
WARM_UP = (Panel(metric="loss", title="Warm-up loss", meaning="Mean over trained tokens. Should fall, but not to 0."),)


def points(rows: Rows, metric: str) -> list[tuple[float, float]]:
    """(step, value) where the metric was written as a number."""
    return [
        (float(r["step"]), float(r[metric]))
        for r in rows
        if isinstance(r.get(metric), int | float) and not isinstance(r.get(metric), bool)
    ]


def learning(rows: Rows) -> Html | None:
    """Reward and pass rate, overall and for each family; None where no step has been taken."""
    overall = _pair(rows, "", "all families")
    if overall is None:
        return None
    names = sorted({k.split("/", 1)[1] for r in rows for k in r if k.startswith(("pass_rate/", "reward/"))})
    panels = [p for p in (_pair(rows, f"/{n}", n) for n in names) if p is not None]
    keys = [el("span", el("i", class_="s1"), "pass rate"), el("span", el("i", class_="s2"), "reward")]
    note = (
        "On training tasks, which the pool makes harder as they are solved, so a flat line can still be progress. "
        "Dots are steps, lines their running mean over five."
    )
    return join(
        [
            el("h2", "Learning curves", id="curves"),
            el("p", note, class_="note"),
            el("p", *keys, class_="legend"),
            el("div", overall, *panels, class_="panels"),
        ]
    )


def _pair(rows: Rows, suffix: str, title: str) -> Html | None:
    passed, reward = points(rows, f"pass_rate{suffix}"), points(rows, f"reward{suffix}")
    lines = [
        Series(name="reward", points=reward, style="s2", smooth=True),
        Series(name="pass rate", points=passed, style="s1", smooth=True),
    ]
    values = [y for _, y in passed + reward]
    fixed = (0.0, 1.0) if values and min(values) >= 0 and max(values) <= 1 else None
    chart = line_chart(lines, title=title, y_range=fixed)
    return chart and el("div", el("h3", title), chart, class_="card panel")


def stability(rows: Rows, warm_up: Rows, findings: Sequence[Any]) -> Html | None:
    """Panels of what is there, with healthy ranges shaded; ``findings`` are those of ``diagnose``."""
    panels = [p for p in (_panel(rows, panel) for panel in PANELS) if p is not None]
    panels += [p for p in (_panel(warm_up, panel) for panel in WARM_UP) if p is not None]
    if not panels:
        return None
    watch = [f for f in findings if not f.healthy]
    cards = [
        el(
            "li",
            el("strong", f"{f.name}: {number(f.figure)}. "),
            f"{f.meaning}. To change: {f.change}." if f.change else f.meaning,
        )
        for f in watch
    ]
    told = el("div", el("h3", "Worth a look"), el("ul", *cards), class_="card") if cards else None
    return join(
        [
            el("h2", "Is training stable?", id="stability"),
            el("p", el("span", el("i", class_="healthy"), "healthy range"), class_="legend"),
            told,
            el("div", *panels, class_="panels"),
        ]
    )


def _panel(rows: Rows, panel: Panel) -> Html | None:
    data = points(rows, panel.metric)
    healthy = panel.healthy
    band = None if healthy == ANY else (healthy.low, healthy.high)
    chart = line_chart([Series(name=panel.title, points=data)], title=panel.title, band=band)
    if chart is None:
        return None
    last = data[-1][1]
    outside = not healthy.holds(last)
    return el(
        "div",
        el("span", number(last), class_="now bad" if outside else "now"),
        el("h3", panel.title),
        el("p", panel.text),
        chart,
        class_="card panel watch" if outside else "card panel",
    )

"""The report's first screen: what the run gained on held-out tasks, by stage and by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from posttrain.dashboard.charts import bar, whisker
from posttrain.dashboard.markup import Html, el, join

_STYLES = {"before": "s0", "few_shot": "s2", "after_sft": "s1", "after_rl": "s3"}


def labels(columns: Sequence[str], options: Mapping[str, Any] = MappingProxyType({})) -> dict[str, str]:
    """What people call the stages; the few-shot one says how many examples it had, where the run's options say so."""
    shots = options.get("few_shot")
    few = f"{shots}-shot" if isinstance(shots, int) and shots > 0 else "few-shot"
    known = {"few_shot": few, "after_sft": "after SFT", "after_rl": "after RLVR"}
    return {c: known.get(c, c.replace("_", " ")) for c in columns}


def headline(results: Mapping[str, Any], named: Mapping[str, str]) -> Html:
    """The overall figures, large, with a bar for each stage."""
    columns = list(results["columns"])
    rates = results["overall"]["pass_rate"]
    first, last = columns[0], columns[-1]
    n = results["overall"]
    size = f"{n['num_families']} families, {n['num_tasks']} tasks in {n['num_templates']} wordings, none seen in training"
    big = " → ".join(_rate(rates[c], 2) for c in dict.fromkeys((first, last)))
    if results["interval"] is not None:
        low, high = results["interval"]
        gain = f"{results['difference']:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}"
    else:
        gain = "no task was judged in both" if len(columns) > 1 else "one evaluation, nothing to compare with"
    bars = []
    for c in columns:
        bars += [
            el("dt", named[c]),
            el("dd", bar(rates[c] or 0.0, _STYLES.get(c, "s1"))),
            el("dd", _rate(rates[c], 3), class_="num"),
        ]
    left = el(
        "div",
        el("h3", "Held-out pass rate"),
        el("p", big, class_="big", data_testid="headline"),
        el("p", gain, class_="gain"),
        el("p", size, class_="note"),
    )
    return el("section", left, el("dl", *bars, class_="stages"), class_="card hero", id="outcome")


def family_table(results: Mapping[str, Any], named: Mapping[str, str]) -> Html:
    """Pass rates by family and stage, with the difference of the last stage to the first and its interval."""
    columns = list(results["columns"])
    head = _comparison(results, columns[0], columns[-1])
    by_family = head["families"] if head else {}
    rows: list[tuple[str, Mapping[str, Any], Mapping[str, Any] | None, str]] = []
    families = sorted(results["families"].items())
    rows += [(n, c, by_family.get(n), "") for n, c in families if not c.get("transfer")]
    rows.append((_count("overall", results["overall"]), results["overall"], head and head["overall"], "sum"))
    rows += [(f"{n} (never trained)", c, by_family.get(n), "") for n, c in families if c.get("transfer")]
    if results.get("transfer"):
        rows.append((_count("never trained", results["transfer"]), results["transfer"], head and head["transfer"], "sum"))
    scale = _scale([r for _, _, r, _ in rows if r])
    shown = [_row(name, cells, row, columns, named, scale, style) for name, cells, row, style in rows]
    top = [el("th", "family"), *(el("th", named[c]) for c in columns)]
    if head:
        top += [el("th", "gain"), el("th", ""), el("th", "95 % interval")]
    return el("table", el("thead", el("tr", *top)), el("tbody", *shown), class_="results")


def _row(
    name: str,
    cells: Mapping[str, Any],
    row: Mapping[str, Any] | None,
    columns: Sequence[str],
    named: Mapping[str, str],
    scale: tuple[float, float],
    style: str,
) -> Html:
    tds = [el("td", name, data_label="family")]
    tds += [el("td", _rate(cells["pass_rate"][c], 2), data_label=named[c]) for c in columns]
    if row:
        tds += _difference(row, scale)
    return el("tr", *tds, class_=style or None)


def _difference(row: Mapping[str, Any], scale: tuple[float, float]) -> list[Html]:
    low, high = row["interval"]
    return [
        el("td", f"{row['difference']:+.2f}", data_label="gain"),
        el("td", whisker(row["difference"], row["interval"], scale), class_="graph"),
        el("td", f"{low:+.2f} to {high:+.2f}", class_="interval", data_label="95 % interval"),
    ]


def step_table(results: Mapping[str, Any], named: Mapping[str, str]) -> Html | None:
    """What each stage added overall, paired; None where there is one comparison or none."""
    comparisons = [c for c in results["comparisons"] if set(c["names"]) <= set(named)]
    if len(comparisons) < 2:
        return None
    scale = _scale([c["overall"] for c in comparisons])
    rows = [
        el("tr", el("td", f"{named[c['names'][0]]} → {named[c['names'][1]]}"), *_difference(c["overall"], scale))
        for c in comparisons
    ]
    top = el("tr", el("th", "stages, all families together"), el("th", "gain"), el("th", ""), el("th", "95 % interval"))
    return el("table", el("thead", top), el("tbody", *rows), class_="results")


def flip_chips(results: Mapping[str, Any]) -> Html:
    """How many tasks changed sides, and how many attempts could not be judged."""
    head = _comparison(results, results["columns"][0], results["columns"][-1])
    chips = []
    for kind, n in sorted((head or {}).get("flip_counts", {}).items(), key=lambda x: -x[1]):
        style = "won" if kind.endswith("-> ok") else "lost" if kind.startswith("ok ->") else ""
        chips.append(el("li", f"{kind.replace('->', '→')}: {n}", class_=f"chip {style}".strip()))
    lost = sum(results.get("unjudged", {}).values())
    chips.append(el("li", f"not judged, left out: {lost}", class_="chip lost" if lost else "chip"))
    return el("ul", *chips, class_="chips")


def outcome(results: Mapping[str, Any], named: Mapping[str, str]) -> Html:
    """The whole first part."""
    note = (
        "Same held-out tasks at every stage, temperature 0, paired. Overall is the mean of the family means. Intervals hold the "
        "families fixed and resample their wordings (bootstrap, seeded). A few-shot column shows worked examples in the prompt."
    )
    steps = step_table(results, named)
    return join(
        [
            headline(results, named),
            el("h2", "Held-out results"),
            el("p", note, class_="note"),
            el("div", family_table(results, named), class_="card"),
            flip_chips(results),
            el("div", steps, class_="card") if steps else None,
        ]
    )


def _comparison(results: Mapping[str, Any], first: str, last: str) -> Mapping[str, Any] | None:
    return next((c for c in results.get("comparisons", ()) if list(c["names"]) == [first, last]), None)


def _rate(value: float | None, digits: int) -> str:
    """A stage that left families out has no overall rate."""
    return "–" if value is None else f"{value:.{digits}f}"


def _count(name: str, cells: Mapping[str, Any]) -> str:
    n = cells["num_families"]
    return f"{name}, {n} famil{'y' if n == 1 else 'ies'}"


def _scale(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    low, high = [r["interval"][0] for r in rows], [r["interval"][1] for r in rows]
    return min([0.0, *low]), max([0.0, *high]) or 1.0

"""One offline HTML file that shows what a run did: no script, no request, everything a model wrote is inert text."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from posttrain.dashboard.curves import learning, stability
from posttrain.dashboard.diagnose import diagnose
from posttrain.dashboard.examples import examples
from posttrain.dashboard.markup import Html, el, join
from posttrain.dashboard.outcome import labels, outcome
from posttrain.errors import UsageError
from posttrain.store.jsonl import write_whole
from posttrain.store.run_dir import RunDir

RLVR, WARM_UP = "rlvr", ("warm_up", "sft")
SECONDS = ("step_seconds", "seconds", "train_seconds")  # the first that a row has is its duration


def write_report(run: RunDir, path: str | Path | None = None) -> Path:
    """Writes the report of ``run`` to ``path`` (default: report.html in the run) and returns where it is.

    Works on unfinished runs: what is not there yet is left out. Raises HostError where the disk refuses.
    """
    where = Path(path) if path is not None else run.path / "report.html"
    if where.is_dir():
        raise UsageError(f"{where} is a directory; name the file that the report goes to, such as {where / 'report.html'}")
    write_whole(where, page(run))
    return where


def page(run: RunDir) -> str:
    """The whole document."""
    style = files("posttrain.dashboard").joinpath("report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"posttrain: {run.path.resolve().name}"),
        Html(f"<style>{style}</style>"),
    )
    return f"<!doctype html>\n{el('html', head, el('body', el('main', *_sections(run))), lang='en')}\n"


def _sections(run: RunDir) -> list[Html]:
    info, options, results = run.info, run.options, run.results()
    rows = run.metrics()
    steps = [r for r in rows if r["stage"] == RLVR]
    warm_up = [r for r in rows if r["stage"] in WARM_UP]
    named = labels(results.get("columns", ()), options)
    parts = [
        outcome(results, named) if "columns" in results else _unfinished(info),
        learning(steps),
        stability(steps, warm_up, _findings(run)),
        examples(run, results, named),
        costs(rows, info, results),
        settings(run, info),
    ]
    shown = [p for p in parts if p]
    return [_header(run, info, options, shown), *shown, el("footer", "Made by posttrain from the run directory alone.")]


def _findings(run: RunDir) -> Sequence[Any]:
    try:
        return diagnose(run)
    except UsageError:  # no step of reinforcement learning yet
        return []


def _header(run: RunDir, info: Mapping[str, Any], options: Mapping[str, Any], shown: Sequence[Html]) -> Html:
    body = join(shown)
    links = [
        el("a", title, href=f"#{anchor}")
        for anchor, title in (
            ("curves", "Learning curves"),
            ("stability", "Stability"),
            ("examples", "Answers"),
            ("costs", "Time and memory"),
            ("settings", "Options and versions"),
        )
        if f'id="{anchor}"' in body
    ]
    started = info.get("started")
    facts = [
        str(options.get("model", "")),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(started)) if isinstance(started, int | float) else "",
        f"seed {info['seed']}" if "seed" in info else "",
        "finished" if run.results() else str(info.get("status", "")),
    ]
    return el(
        "header",
        el("h1", f"posttrain · {run.path.resolve().name}"),
        el("p", " · ".join(f for f in facts if f), class_="where"),
        el("nav", *links),
    )


def _unfinished(info: Mapping[str, Any]) -> Html:
    return el(
        "section",
        el("p", f"No results yet: the run is {info.get('status', 'unknown')}.", class_="gain"),
        class_="card hero",
        id="outcome",
    )


def costs(rows: Sequence[Mapping[str, Any]], info: Mapping[str, Any], results: Mapping[str, Any]) -> Html | None:
    """Wall time, process CPU time, peak memory and tokens of each stage; None where nothing was timed."""
    stages: dict[str, dict[str, float]] = {}
    for row in rows:
        stage = stages.setdefault(str(row["stage"]), {"steps": 0.0})
        stage["steps"] += 1
        seconds = next((float(row[k]) for k in SECONDS if k in row), 0.0)
        for key, value in (
            ("seconds", seconds),
            ("cpu", float(row.get("cpu_seconds", 0))),
            ("tokens", float(row.get("sampled_tokens", 0)) + float(row.get("num_tokens_trained", 0))),
        ):
            stage[key] = stage.get(key, 0.0) + value
        stage["memory"] = max(stage.get("memory", 0.0), float(row.get("peak_memory_bytes", 0)))
    if not any(s.get("seconds") for s in stages.values()):
        return None
    columns = (("steps", "steps"), ("seconds", "wall time"), ("cpu", "CPU time"), ("memory", "peak memory"), ("tokens", "tokens"))
    kept = [(k, label) for k, label in columns if any(s.get(k) for s in stages.values())]
    top = el("tr", el("th", "stage"), *(el("th", label) for _, label in kept))
    body = [
        el("tr", el("td", name.replace("_", " ")), *(el("td", _cost(k, s.get(k, 0.0)), data_label=label) for k, label in kept))
        for name, s in stages.items()
    ]
    total = _total(info, results)
    return join(
        [
            el("h2", "Time and memory", id="costs"),
            el("p", total, class_="note") if total else None,
            el("div", el("table", el("thead", top), el("tbody", *body), class_="results"), class_="card"),
        ]
    )


def _total(info: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    said = [f"{results['minutes']:.1f} minutes in all" if isinstance(results.get("minutes"), int | float) else ""]
    peak = results.get("peak_memory_bytes")
    said.append(f"{peak / 1e9:.2f} GB at most" if isinstance(peak, int | float) else "")
    said.append(str(info.get("cpu", "")))
    said.append(f"{info['cores']} cores" if "cores" in info else "")
    return ", ".join(s for s in said if s)


def _cost(kind: str, value: float) -> str:
    if not value:
        return "–"
    if kind in ("seconds", "cpu"):
        return f"{value / 60:.1f} min" if value >= 60 else f"{value:.1f} s"
    if kind == "memory":
        return f"{value / 1e9:.2f} GB"
    return f"{value:,.0f}"


def settings(run: RunDir, info: Mapping[str, Any]) -> Html:
    """Resolved options (secrets redacted when they were stored), versions and host."""
    facts: list[tuple[str, str]] = []
    for key, value in info.items():
        if isinstance(value, Mapping):
            facts += [(f"{key}: {k}", str(v)) for k, v in value.items()]
        elif value is not None and key not in ("started", "ended", "pid"):
            facts.append((key.replace("_", " "), str(value)))
    rows = join([join([el("dt", k), el("dd", v)]) for k, v in facts])
    toml = (run.path / "options.toml").read_text(encoding="utf-8")
    return join(
        [
            el("h2", "Options and versions", id="settings"),
            el("details", el("summary", "Options of this run"), el("pre", toml)),
            el("details", el("summary", "Versions and host"), el("dl", rows, class_="facts")),
        ]
    )

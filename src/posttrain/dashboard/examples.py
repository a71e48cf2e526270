"""Attempts to read: tasks that were won, lost or changed otherwise between the first and the last evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from posttrain.dashboard.charts import number
from posttrain.dashboard.markup import Html, el, join
from posttrain.store.run_dir import RunDir
from posttrain.types import Message, Trajectory

MOST = 8  # examples of each kind
LONGEST = 4000  # characters of one text

GROUPS = (
    ("Won", "won", "Failed before, passes now.", lambda kind: kind.endswith("-> ok")),
    ("Lost", "lost", "Passed before, fails now.", lambda kind: kind.startswith("ok ->")),
    ("Changed without passing", "", "Fails in another way than before.", lambda kind: "ok" not in kind.split(" -> ")),
)


def examples(run: RunDir, results: Mapping[str, Any], named: Mapping[str, str]) -> Html | None:
    """The part of the report; None where nothing flipped or the trajectories are gone."""
    columns = list(results.get("columns", ()))
    wanted = [c for c in results.get("comparisons", ()) if columns and list(c["names"]) == [columns[0], columns[-1]]]
    if not wanted or not wanted[0]["flips"]:
        return None
    stages = set(run.stages())
    if not {columns[0], columns[-1]} <= stages:
        return None
    chosen = [
        (title, style, meaning, _varied([f for f in wanted[0]["flips"] if fits(f["kind"])]))
        for title, style, meaning, fits in GROUPS
    ]
    flips = [f for _, _, _, fs in chosen for f in fs]
    old = _find(run.trajectories(columns[0]), {(f["family"], f["before"]) for f in flips})
    new = _find(run.trajectories(columns[-1]), {(f["family"], f["after"]) for f in flips})
    parts = [el("h2", "Answers, before and after", id="examples")]
    for title, style, meaning, mine in chosen:
        shown = [
            _example(
                f, old[f["family"], f["before"]], new[f["family"], f["after"]], style, (named[columns[0]], named[columns[-1]])
            )
            for f in mine
            if (f["family"], f["before"]) in old and (f["family"], f["after"]) in new
        ]
        if shown:
            parts.append(el("div", el("h3", title), el("p", meaning, class_="note"), *shown, class_="group"))
    return join(parts) if len(parts) > 1 else None


def _varied(flips: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """At most ``MOST``, one family after the other."""
    by_family: dict[str, list[Mapping[str, Any]]] = {}
    for f in flips:
        by_family.setdefault(f["family"], []).append(f)
    depth = max((len(v) for v in by_family.values()), default=0)
    return [v[i] for i in range(depth) for v in by_family.values() if i < len(v)][:MOST]


def _find(trajectories: Iterable[Trajectory], wanted: set[tuple[str, str]]) -> dict[tuple[str, str], Trajectory]:
    return {(t.task.environment, t.id): t for t in trajectories if (t.task.environment, t.id) in wanted}


def _example(flip: Mapping[str, Any], old: Trajectory, new: Trajectory, style: str, names: tuple[str, str]) -> Html:
    summary = el(
        "summary",
        el("span", flip["kind"].replace("->", "→"), class_=f"chip {style}".strip()),
        " ",
        el("strong", flip["family"]),
        " ",
        el("span", flip["task_id"], class_="id"),
    )
    prompt = [_turn(m.role, _message(m)) for m in new.task.prompt]
    answers = el("div", _attempt(names[0], old), _attempt(names[1], new), class_="pair")
    reference = (
        _turn("reference answer, never shown to the policy", _plain(new.task.answer)) if new.task.answer is not None else None
    )
    return el("details", summary, *prompt, answers, reference)


def _attempt(name: str, trajectory: Trajectory) -> Html:
    verdict = trajectory.verdict
    turns = [_turn("answer" if t.role == "assistant" else "reply", t.text) for t in trajectory.turns if t.role != "prompt"]
    facts: list[tuple[str, Any]] = [("verdict", verdict.status if verdict else "none"), ("outcome", trajectory.outcome)]
    if trajectory.reward is not None:
        facts.append(("reward", number(trajectory.reward)))
    if verdict is not None:
        facts += [(f"part: {part}", number(value)) for part, value in verdict.parts.items()]
        facts += [("feedback", verdict.feedback)] if verdict.feedback else []
    facts.append(("tokens", trajectory.num_sampled))
    style = "ok" if verdict is not None and verdict.status == "ok" else "bad"
    rows = join([join([el("dt", k), el("dd", _short(str(v)), class_=style if k == "verdict" else None)]) for k, v in facts])
    return el("div", el("h3", name), *turns, el("dl", rows, class_="facts"))


def _turn(role: str, content: str) -> Html:
    return el("div", el("span", role), el("pre", _short(content) or "(empty)"), class_="turn")


def _message(message: Message) -> str:
    calls = "\n".join(f"{c.name}({json.dumps(dict(c.arguments), ensure_ascii=False)})" for c in message.tool_calls)
    return "\n".join(x for x in (message.content, calls) if x)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)


def _short(content: str) -> str:
    if len(content) <= LONGEST:
        return content
    return f"{content[:LONGEST]}\n... ({len(content) - LONGEST:,} more characters are in the run directory)"

"""Two or more evaluations of the same tasks, side by side: differences with intervals, flips, the table, the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.dashboard.outcome import labels
from posttrain.errors import EXIT_INVALID_RUN, UsageError, nearest
from posttrain.evals.outcomes import Item, ItemKey, attempt_numbers, duplicates, flips, items
from posttrain.evals.statistics import bootstrap, pass_at_k, pass_hat_k, wilson
from posttrain.evals.verdict import judge
from posttrain.store.run_dir import RunDir
from posttrain.types import Trajectory

STAGES = ("before", "few_shot", "after_sft", "after_rl", "eval")  # evaluations, in order; a bare run means its last plain one
INFRA_CEILING = 0.02


def compare(
    before: Sequence[Trajectory],
    after: Sequence[Trajectory],
    *,
    names: tuple[str, str] = ("before", "after"),
    transfer: Iterable[str] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """Paired by task: ``families``, ``domains``, ``overall``, ``transfer`` (the families named so, else None), ``flips``.

    Each row holds ``before``, ``after``, ``difference``, ``interval`` (95 %, families fixed, templates resampled),
    ``num_tasks``, ``num_clusters``. ``overall`` is the mean over the families that are not transfer families. Tasks without a
    judged attempt in both arms are left out and counted as ``num_unpaired``. Raises UsageError when nothing pairs up.
    """
    old, new = items(before), items(after)
    pairs = _pairs(old, new)
    if not pairs:
        raise UsageError(f"{names[0]} and {names[1]} share no judged task; compare evaluations of the same tasks")
    apart = set(transfer)
    main = [p for p in pairs if p[0].family not in apart]
    held = [p for p in pairs if p[0].family in apart]
    by_family, by_domain = _split(pairs, "family"), _split(main, "domain")
    found = flips(old, new)
    return {
        "names": list(names),
        "metric": "pass_rate",
        "overall": _row(main or pairs, seed),
        "transfer": _row(held, seed) if held and main else None,
        "families": {name: _row(p, seed) for name, p in by_family.items()},
        "domains": {name: _row(p, seed) for name, p in by_domain.items()},
        "flips": found,
        "flip_counts": dict(Counter(f["kind"] for f in found)),
        "num_unpaired": len(old.keys() | new.keys()) - len(pairs),
        "unjudged": {name: sum(i.num_unjudged for i in arm.values()) for name, arm in zip(names, (old, new), strict=True)},
    }


def _pairs(old: dict[ItemKey, Item], new: dict[ItemKey, Item]) -> list[tuple[Item, Item]]:
    return [(item, new[key]) for key, item in old.items() if key in new and item.num_judged and new[key].num_judged]


def _split(pairs: Sequence[tuple[Item, Item]], by: str) -> dict[str, list[tuple[Item, Item]]]:
    groups: dict[str, list[tuple[Item, Item]]] = {}
    for pair in sorted(pairs, key=lambda p: p[0].family):
        name = pair[0].family if by == "family" else pair[0].family.split("/", 1)[0]
        groups.setdefault(name, []).append(pair)
    return groups


def _row(pairs: Sequence[tuple[Item, Item]], seed: int) -> dict[str, Any]:
    families = [a.family for a, _ in pairs]
    estimate = bootstrap([b.pass_rate - a.pass_rate for a, b in pairs], families, [a.cluster for a, _ in pairs], seed=seed)
    return {
        "before": _mean_of_families([a for a, _ in pairs]),
        "after": _mean_of_families([b for _, b in pairs]),
        "difference": estimate.mean,
        "interval": [max(-1.0, estimate.low), min(1.0, estimate.high)],
        "num_tasks": len(pairs),
        "num_families": len(set(families)),
        "num_clusters": estimate.num_clusters,
        "degenerate": estimate.degenerate,
    }


def _mean_of_families(
    arm: Iterable[Item], *, names: Iterable[str] = (), of: Callable[[Item], float] = lambda item: item.pass_rate, least: int = 1
) -> float | None:
    """Over tasks with at least ``least`` judged attempts; None where one of ``names`` has none."""
    rates: dict[str, list[float]] = {name: [] for name in names}
    for item in arm:
        if item.num_judged >= least:
            rates.setdefault(item.family, []).append(of(item))
    if not rates or not all(rates.values()):
        return None
    return sum(sum(r) / len(r) for r in rates.values()) / len(rates)


def table(stages: Mapping[str, Sequence[Trajectory]], *, transfer: Iterable[str] = (), seed: int = 0) -> dict[str, Any]:
    """The results of a run, JSON-able: pass rates by family and stage, differences from the first stage and to the last.

    ``stages`` are evaluations of the same tasks in order: ``{"before": [...], "after_rl": [...]}``. Each one's overall pass
    rate stands at the top under its own name; ``difference`` and ``interval`` are of the last against the first, None where the
    two share no judged task or there is one stage alone. A stage that left families out (no oracle, no few-shot prompt) has None
    there and overall: a mean over other families is not comparable. Stages without trajectories are left out. Where tasks have
    several attempts, cells hold ``pass_at`` and ``pass_all``: by stage and k, the chance that one, or each, of k attempts passes.
    """
    stages = {name: t for name, t in stages.items() if t}
    if not stages:
        raise UsageError("no stage holds trajectories; there is nothing to tabulate")
    apart, columns = set(transfer), list(stages)
    arms = {name: items(t) for name, t in stages.items()}
    names = sorted({i.family for arm in arms.values() for i in arm.values()})
    first, last = columns[0], columns[-1]
    wanted = dict.fromkeys([(first, c) for c in columns[1:]] + [(c, last) for c in columns[:-1]])
    comparisons = [
        compare(stages[a], stages[b], names=(a, b), transfer=apart, seed=seed) for a, b in wanted if _pairs(arms[a], arms[b])
    ]
    head = next((c for c in comparisons if c["names"] == [first, last]), None)
    mains = [n for n in names if n not in apart] or names
    held = [n for n in names if n in apart] if mains != names else []
    families = {n: _cells(arms, [n]) | {"transfer": n in held} for n in names}
    overall = _cells(arms, mains)
    return {
        **{name: overall["pass_rate"][name] for name in columns},
        "difference": head["overall"]["difference"] if head else None,
        "interval": head["overall"]["interval"] if head else None,
        "columns": columns,
        "overall": overall,
        "transfer": _cells(arms, held) if held else None,
        "families": families,
        "comparisons": comparisons,
        "unjudged": {name: sum(i.num_unjudged for i in arm.values()) for name, arm in arms.items()},
    }


def _cells(arms: Mapping[str, dict[ItemKey, Item]], names: Sequence[str]) -> dict[str, Any]:
    """Mean of family means for each stage, over the families named."""
    mine = {stage: [i for i in arm.values() if i.family in names] for stage, arm in arms.items()}
    cells: dict[str, Any] = {
        "num_families": len(names),
        "num_tasks": max(len(m) for m in mine.values()),
        "num_templates": len({i.cluster for m in mine.values() for i in m}),
        "pass_rate": {stage: _mean_of_families(m, names=names) for stage, m in mine.items()},
        "reward": {stage: _mean_of_families(m, names=names, of=lambda item: item.reward) for stage, m in mine.items()},
    }
    if any(map(attempt_numbers, mine.values())):
        cells["pass_at"] = {stage: _of_attempts(m, names, pass_at_k) for stage, m in mine.items()}
        cells["pass_all"] = {stage: _of_attempts(m, names, pass_hat_k) for stage, m in mine.items()}
    elif len(names) == 1:  # a single family's rate is a plain proportion of judged tasks
        judged = {s: [i for i in m if i.num_judged] for s, m in mine.items()}
        cells["rate_interval"] = {s: list(wilson(sum(i.num_passed for i in m), len(m))) for s, m in judged.items()}
    return cells


def _of_attempts(arm: Sequence[Item], names: Sequence[str], chance: Callable[[int, int, int], float]) -> dict[str, float | None]:
    """By k: the mean of family means of a chance over k attempts, over tasks of which k attempts were judged."""

    def mean(k: int) -> float | None:
        return _mean_of_families(arm, names=names, of=lambda item: chance(item.num_judged, item.num_passed, k), least=k)

    return {str(k): mean(k) for k in attempt_numbers(arm)}


def table_text(results: Mapping[str, Any]) -> str:
    """The table of ``table`` as aligned plain text for a terminal."""
    columns = list(results["columns"])
    head = next((c for c in results["comparisons"] if c["names"] == [columns[0], columns[-1]]), None)
    named = labels(columns)
    rows = [["", *named.values(), "gain", "95 % interval"]]

    def add(label: str, cells: Mapping[str, Any], row: Mapping[str, Any] | None) -> None:
        rates = ["-" if cells["pass_rate"][c] is None else f"{cells['pass_rate'][c]:.2f}" for c in columns]
        rows.append([label, *rates, *([f"{row['difference']:+.2f}", _span(row["interval"])] if row else ["", ""])])

    for name, cells in results["families"].items():
        if not cells["transfer"]:
            add(name, cells, head["families"].get(name) if head else None)
    trained = results["overall"]["num_families"]
    add(f"overall, {trained} famil{'y' if trained == 1 else 'ies'}", results["overall"], head["overall"] if head else None)
    for name, cells in results["families"].items():
        if cells["transfer"]:
            add(f"{name} (not trained)", cells, head["families"].get(name) if head else None)
    if results["transfer"]:
        n = results["transfer"]["num_families"]
        add(f"never trained, {n} famil{'y' if n == 1 else 'ies'}", results["transfer"], head["transfer"] if head else None)
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = ["  ".join([r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:], widths[1:], strict=True))]) for r in rows]
    lines = [line.rstrip() for line in lines]
    lines.insert(1, "-" * max(map(len, lines)))
    if head and head["flip_counts"]:
        lines.append("flips: " + ", ".join(f"{kind} {n}" for kind, n in sorted(head["flip_counts"].items(), key=lambda x: -x[1])))
    lines += _attempts_lines(results["overall"], named)
    lost = {named[c]: n for c, n in results["unjudged"].items() if n}
    if lost:
        lines.append("left out, not judged: " + ", ".join(f"{name} {n}" for name, n in lost.items()))
    return "\n".join(lines)


def _attempts_lines(cells: Mapping[str, Any], named: Mapping[str, str]) -> list[str]:
    """The overall chances that one, or each, of k attempts passes, a line for each stage that made several."""
    lines = []
    for c, label in named.items():
        shown = [(k, v, cells["pass_all"][c][k]) for k, v in cells.get("pass_at", {}).get(c, {}).items() if v is not None]
        if shown:
            one, every = (", ".join(f"{k}: {pair[at]:.2f}" for k, *pair in shown) for at in (0, 1))
            lines.append(f"{label}, one of k attempts passes (pass@k): {one}; each of k (pass^k): {every}")
    return lines


def _span(interval: Sequence[float]) -> str:
    return f"{interval[0]:+.2f} to {interval[1]:+.2f}"


def main(a: str, b: str, *, margin: float = 0.03, as_json: bool = False, seed: int = 0) -> dict[str, Any]:
    """The answer of ``posttrain eval compare A B``: is B worse than A by more than ``margin``? JSON-able.

    A and B are run directories (their last evaluation) or ``run:stage``. ``exit_code``: 0 PASS, 1 FAIL, 3 INCONCLUSIVE, 4 when
    the two cannot be compared. ``text`` is what to print: prose, or one JSON document with ``as_json``.
    """
    if not 0 < margin < 1:
        raise UsageError(f"margin is {margin}; give a share between 0 and 1, such as 0.03 for three points")
    (name_a, before), (name_b, after) = load_arm(a), load_arm(b)
    invalid = problems(before, after, (name_a, name_b))
    result: dict[str, Any]
    if invalid:
        result = {"verdict": "INVALID", "exit_code": EXIT_INVALID_RUN, "margin": margin, "reasons": invalid}
        lines = [f"INVALID: {name_a} and {name_b} cannot be compared.", *(f"  {reason}" for reason in invalid)]
    else:
        figures = compare(before, after, names=(name_a, name_b), seed=seed)
        result = judge(_pairs(items(before), items(after)), margin=margin, seed=seed) | {"comparison": figures}
        lines = [*_comparison_lines(figures), f"{result['verdict']}: {' '.join(result['reasons'])}"]
    result["text"] = json.dumps(result, indent=1, ensure_ascii=False) if as_json else "\n".join(lines)
    return result


def _comparison_lines(figures: Mapping[str, Any]) -> list[str]:
    width = max(len(n) for n in [*figures["families"], "overall"])
    rows = [*figures["families"].items(), ("overall", figures["overall"])]
    lines = [f"{figures['names'][0]} -> {figures['names'][1]}"]
    lines += [
        f"  {n.ljust(width)}  {r['before']:.3f} -> {r['after']:.3f}  {r['difference']:+.3f}  ({_span(r['interval'])}, "
        f"{r['num_tasks']} tasks)"
        for n, r in rows
    ]
    lines += [f"  {kind}: {n}" for kind, n in sorted(figures["flip_counts"].items())]
    return lines


def load_arm(source: str) -> tuple[str, list[Trajectory]]:
    """(name, trajectories) of ``run`` or ``run:stage``. Raises UsageError where there is no such run or stage."""
    path, _, stage = source.rpartition(":")
    if not path or Path(source).is_dir():
        path, stage = source, ""
    run = RunDir.open(path)
    stored = run.stages()
    if not stage:
        evaluations = [s for s in STAGES if s in stored and s != "few_shot"]
        if not evaluations:
            raise UsageError(f"{path} holds no evaluation yet (its stages: {', '.join(stored) or 'none'}); name one as RUN:STAGE")
        stage = evaluations[-1]
    if stage not in stored:
        raise UsageError(f"{path} has no stage {stage!r}.{nearest(stage, stored)}")
    return f"{path}:{stage}", list(run.trajectories(stage))


def problems(before: Sequence[Trajectory], after: Sequence[Trajectory], names: tuple[str, str]) -> list[str]:
    """Why two evaluations cannot be compared, one sentence each; empty when they can."""
    old, new = items(before), items(after)
    found = []
    for name, trajectories, arm in zip(names, (before, after), (old, new), strict=True):
        twice = duplicates(trajectories)
        if twice:
            found.append(f"{name} holds {len(twice)} attempts twice, such as {twice[0]}.")
        lost, total = sum(i.num_unjudged for i in arm.values()), sum(i.num_unjudged + i.num_judged for i in arm.values())
        if not total:
            found.append(f"{name} holds no attempts.")
        elif lost / total > INFRA_CEILING:
            found.append(
                f"{name} has {lost} of {total} attempts without a judgement (ceiling {INFRA_CEILING:.0%}); run it again."
            )
    alone = sorted(old.keys() ^ new.keys())
    if alone:
        found.append(f"{len(alone)} tasks are in one evaluation only, such as {alone[0][1]}; evaluate both on the same tasks.")
    both = [(old[k], new[k]) for k in old.keys() & new.keys()]
    changed = sorted(a.key[1] for a, b in both if a.prompt != b.prompt)
    if changed:
        found.append(f"{len(changed)} tasks have another prompt under the same id, such as {changed[0]}.")
    if any(a.temperature != b.temperature for a, b in both if None not in (a.temperature, b.temperature)):
        found.append("the two were sampled at different temperatures; evaluate both alike.")
    return found

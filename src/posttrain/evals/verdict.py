"""PASS, FAIL or INCONCLUSIVE: is the second arm worse than the first by more than a margin?

PASS: the one-sided 95 % bound of the overall difference lies above -margin (non-inferior). FAIL: it does not, and a drop is
shown, overall or in one family. INCONCLUSIVE: neither, with the number of tasks or samples that would decide. Under no
change the two ways to FAIL share 5 %: 4 % for the overall figure, 1 % for all families together (Holm over exact or
permutation tests on tasks, so they see a family that collapses, not one that wavers).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from posttrain.errors import EXIT_INCONCLUSIVE, EXIT_OK, EXIT_REGRESSION
from posttrain.evals.outcomes import Item
from posttrain.evals.power import inflation, items_needed
from posttrain.evals.statistics import bootstrap, holm, mcnemar, sign_flip

ALPHA_PASS = 0.05
ALPHA_OVERALL = 0.04
ALPHA_FAMILIES = 0.01


def judge(pairs: Sequence[tuple[Item, Item]], *, margin: float, seed: int) -> dict[str, Any]:
    """The verdict on paired items, at least one. ``exit_code`` is 0, 1 or 3; ``reasons`` are sentences."""
    differences = np.array([b.pass_rate - a.pass_rate for a, b in pairs])
    families, clusters = [a.family for a, _ in pairs], [a.cluster for a, _ in pairs]
    to_pass = bootstrap(differences, families, clusters, seed=seed, level=1 - 2 * ALPHA_PASS)
    to_fail = bootstrap(differences, families, clusters, seed=seed, level=1 - 2 * ALPHA_OVERALL)
    worse = _worse_families(pairs)
    reasons = []
    if to_fail.high < 0:
        reasons.append(f"overall it dropped by {-100 * to_fail.mean:.1f} points (at least {-100 * to_fail.high:.1f}).")
    reasons += [f"{name} dropped by {100 * drop:.1f} points (p = {p:.2g} after Holm)." for name, drop, p in worse]
    needed: dict[str, Any] = {}
    if to_pass.low > -margin and not worse:
        name, code = "PASS", EXIT_OK
        low = 100 * to_pass.low
        grew = f"it rose by {100 * to_pass.mean:.1f} points (at least {low:.1f})."
        reasons = [grew if low > 0 else f"the drop is below {100 * margin:g} points: at worst {-low:.1f}."]
    elif reasons:
        name, code = "FAIL", EXIT_REGRESSION
    else:
        name, code = "INCONCLUSIVE", EXIT_INCONCLUSIVE
        needed = _needed(pairs, differences, to_pass.standard_error, margin)
        reasons = [f"a drop of up to {-100 * to_pass.low:.1f} points is not excluded. {_advice(needed, margin)}"]
    return {
        "verdict": name,
        "exit_code": code,
        "margin": margin,
        "difference": to_pass.mean,
        "lower_bound": to_pass.low,
        "standard_error": to_pass.standard_error,
        "families_worse": [w[0] for w in worse],
        "reasons": reasons,
        **needed,
    }


def _worse_families(pairs: Sequence[tuple[Item, Item]]) -> list[tuple[str, float, float]]:
    """(family, drop, adjusted p) of families shown to be worse on their own, worst first."""
    names = list(dict.fromkeys(a.family for a, _ in pairs))
    p_values, drops = [], []
    for name in names:
        mine = [(a, b) for a, b in pairs if a.family == name]
        d = [b.pass_rate - a.pass_rate for a, b in mine]
        drops.append(-sum(d) / len(d))
        if all(a.num_judged == b.num_judged == 1 for a, b in mine):
            p_values.append(mcnemar(sum(x < 0 for x in d), sum(x > 0 for x in d), alternative="less"))
        else:
            p_values.append(sign_flip(d, seed=0, alternative="less"))
    found = [(n, drop, p) for n, drop, p in zip(names, drops, holm(p_values), strict=True) if p < ALPHA_FAMILIES]
    return sorted(found, key=lambda f: -f[1])


def _needed(pairs: Sequence[tuple[Item, Item]], differences: Any, error: float, margin: float) -> dict[str, Any]:
    """How many tasks, or samples a task, would show a true difference of 0 to lie within the margin, with power 0.8."""
    tasks = items_needed(len(pairs), error, margin)
    samples = min(min(a.num_judged, b.num_judged) for a, b in pairs)
    result: dict[str, Any] = {"tasks": len(pairs), "samples": samples, "tasks_needed": tasks, "samples_needed": None}
    spread = float(np.var(differences))
    if samples < 2 or spread == 0:
        return result
    noise = sum(x.pass_rate * (1 - x.pass_rate) / (x.num_judged - 1) for pair in pairs for x in pair) / len(pairs)
    share = min(noise / spread, 1.0)  # of the variance that more samples would shrink
    room = (margin / (inflation() * error)) ** 2 - (1 - share)
    if room > 0:
        result["samples_needed"] = math.ceil(samples * share / room)
    return result


def _advice(needed: dict[str, Any], margin: float) -> str:
    more = f", or {needed['tasks']} tasks with {needed['samples_needed']} samples each" if needed["samples_needed"] else ""
    return (
        f"To decide {100 * margin:g} points: about {needed['tasks_needed']} tasks with {needed['samples']} "
        f"sample{'s' if needed['samples'] != 1 else ''} each{more} (now {needed['tasks']})."
    )

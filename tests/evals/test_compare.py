"""Comparisons and verdicts on made-up evaluations whose right answer is known."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.errors import UsageError
from posttrain.evals import compare as cmp
from posttrain.evals.outcomes import items
from posttrain.evals.verdict import judge
from posttrain.store.run_dir import RunDir
from posttrain.types import Message, Sampling, Task, Trajectory, Turn, Verdict

FAMILIES = ("math/sums", "math/units", "tables/query", "text/limits")


def attempt(family: str, index: int, status: str, attempt: int = 0, prompt: str = "") -> Trajectory:
    """One judged attempt; status infra_error makes it an infrastructure failure."""
    text = prompt or f"{family} {index}?"
    task = Task(
        id=f"{family}/s{index}", environment=family, template=str(index % 4), prompt=(Message(role="user", content=text),)
    )
    turns = (Turn(role="prompt", token_ids=(1,)), Turn(role="assistant", token_ids=(2,), text=status))
    if status == "infra_error":
        return Trajectory(task=task, attempt=attempt, turns=turns, outcome="infra_error", error="lost")
    reward = float(status == "ok")
    verdict = Verdict(status=status, reward=reward)  # type: ignore[arg-type]
    return Trajectory(task=task, attempt=attempt, turns=turns, verdict=verdict, reward=reward, sampling=Sampling(temperature=0.0))


def arm(rates: dict[str, float], n: int = 40, samples: int = 1, seed: int = 0) -> list[Trajectory]:
    """n tasks a family; the task's chance to pass is the family's rate, the draws are seeded."""
    rng = np.random.default_rng(seed)
    return [
        attempt(f, i, "ok" if rng.random() < p else "wrong", a)
        for f, p in rates.items()
        for i in range(n)
        for a in range(samples)
    ]


def store(path: Path, **stages: list[Trajectory]) -> str:
    """A run directory that holds these evaluations."""
    with RunDir.create(path, {"seed": 0}) as run:
        for stage, trajectories in stages.items():
            run.write_trajectories(stage, 0, trajectories)
            run.commit(stage, 0)
        run.set_status("finished")
    return str(path)


def test_differences_are_means_of_family_means() -> None:
    before = [attempt("a/x", i, "ok" if i < 2 else "wrong") for i in range(8)] + [attempt("b/y", i, "wrong") for i in range(4)]
    after = [attempt("a/x", i, "ok" if i < 6 else "wrong") for i in range(8)] + [attempt("b/y", i, "ok") for i in range(4)]
    got = cmp.compare(before, after)
    assert got["families"]["a/x"]["difference"] == pytest.approx(0.5)
    assert got["families"]["b/y"]["difference"] == pytest.approx(1.0)
    assert got["overall"]["difference"] == pytest.approx(0.75)
    assert got["overall"]["before"] == pytest.approx(0.125) and got["overall"]["after"] == pytest.approx(0.875)
    low, high = got["overall"]["interval"]
    assert low < 0.75 < high <= 1.0
    assert got["domains"].keys() == {"a", "b"}


def test_flips_tell_a_learned_format_from_a_learned_skill() -> None:
    kinds = [("malformed", "ok"), ("wrong", "ok"), ("ok", "wrong"), ("ok", "malformed"), ("wrong", "malformed"), ("ok", "ok")]
    before = [attempt("a/x", i, k[0]) for i, k in enumerate(kinds)]
    after = [attempt("a/x", i, k[1]) for i, k in enumerate(kinds)]
    got = cmp.compare(before, after)
    assert got["flip_counts"] == {
        "ok -> wrong": 1, "ok -> malformed": 1, "malformed -> ok": 1, "wrong -> ok": 1, "wrong -> malformed": 1,
    }  # fmt: skip
    assert [f["kind"] for f in got["flips"]][:2] == ["ok -> wrong", "ok -> malformed"]  # losses first
    assert got["flips"][0]["task_id"] == "a/x/s2" and got["flips"][0]["after"] == "a/x/s2#0.0"


def test_infrastructure_failures_are_neither_pass_nor_fail() -> None:
    before = [attempt("a/x", i, "ok") for i in range(8)]
    after = [attempt("a/x", i, "infra_error" if i == 3 else "ok") for i in range(8)]
    got = cmp.compare(before, after)
    assert got["overall"]["difference"] == 0.0 and got["overall"]["num_tasks"] == 7
    assert got["unjudged"] == {"before": 0, "after": 1} and got["num_unpaired"] == 1 and not got["flips"]


def test_samples_of_a_task_are_averaged_before_pairing() -> None:
    before = [attempt("a/x", i, "ok" if a == 0 else "wrong", a) for i in range(4) for a in range(4)]
    after = [attempt("a/x", i, "ok" if a < 3 else "wrong", a) for i in range(4) for a in range(4)]
    got = cmp.compare(before, after)
    assert got["overall"]["difference"] == pytest.approx(0.5) and got["overall"]["num_tasks"] == 4
    assert got["flip_counts"] == {"wrong -> ok": 4}


def test_compare_refuses_evaluations_without_a_common_task() -> None:
    with pytest.raises(UsageError, match="share no judged task"):
        cmp.compare([attempt("a/x", 0, "ok")], [attempt("a/x", 1, "ok")])


def test_table_of_stages_keeps_transfer_families_apart() -> None:
    stages = {
        "before": arm({"a/x": 0.0, "b/y": 0.0, "c/z": 0.0}),
        "few_shot": arm({"a/x": 0.0, "b/y": 1.0, "c/z": 0.0}),
        "after_sft": arm({"a/x": 1.0, "b/y": 0.0, "c/z": 0.0}),
        "after_rl": arm({"a/x": 1.0, "b/y": 1.0, "c/z": 0.0}),
    }
    got = cmp.table(stages, transfer=["c/z"])
    assert (got["before"], got["few_shot"], got["after_sft"], got["after_rl"]) == (0.0, 0.5, 0.5, 1.0)
    assert got["difference"] == 1.0 and got["transfer"]["pass_rate"]["after_rl"] == 0.0
    assert got["families"]["c/z"]["transfer"] and not got["families"]["a/x"]["transfer"]
    pairs = [tuple(c["names"]) for c in got["comparisons"]]
    assert ("before", "after_rl") in pairs and ("after_sft", "after_rl") in pairs and len(pairs) == len(set(pairs))
    json.dumps(got, allow_nan=False)
    text = cmp.table_text(got)
    lines = {line.split("  ")[0].strip(): line for line in text.splitlines()}
    assert "after RLVR" in text and "+1.00" in lines["overall, 2 families"] and "0.00" in lines["c/z (not trained)"]
    assert lines["overall, 2 families"].split()[3:7] == ["0.00", "0.50", "0.50", "1.00"]


def test_a_stage_that_left_families_out_has_no_overall_rate() -> None:
    stages = {
        "before": arm({"a/x": 0.0, "b/y": 0.5}),
        "few_shot": arm({"a/x": 1.0}),
        "after_sft": [],
        "after_rl": arm({"a/x": 1.0, "b/y": 1.0}),
    }
    got = cmp.table(stages)
    assert got["columns"] == ["before", "few_shot", "after_rl"]
    assert got["few_shot"] is None and got["families"]["b/y"]["pass_rate"]["few_shot"] is None
    assert got["families"]["a/x"]["pass_rate"]["few_shot"] == 1.0
    assert next(c for c in got["comparisons"] if c["names"] == ["before", "few_shot"])["overall"]["num_families"] == 1
    line = next(x for x in cmp.table_text(got).splitlines() if x.startswith("overall"))
    assert line.split()[4] == "-"
    with pytest.raises(UsageError, match="nothing to tabulate"):
        cmp.table({"before": []})


def test_a_table_of_one_stage_can_be_shown() -> None:
    got = cmp.table({"eval": arm({"a/x": 0.5})})
    assert "overall, 1 family" in cmp.table_text(got)
    assert got["difference"] is None and got["interval"] is None, "nothing was compared, which is no difference of 0"


def test_stages_that_share_no_judged_task_have_no_difference() -> None:
    lost = [attempt("a/x", i, "infra_error") for i in range(4)]
    got = cmp.table({"before": lost, "after_rl": [attempt("a/x", i, "ok") for i in range(4)]})
    assert (got["before"], got["after_rl"], got["difference"], got["interval"]) == (None, 1.0, None, None)
    cmp.table_text(got)
    json.dumps(got, allow_nan=False)


def test_several_attempts_give_the_chance_of_one_and_of_each_by_brute_force() -> None:
    """Mean of family means over tasks of the share of all k-subsets of the judged attempts; what we lost counts nowhere."""
    passed = {"a/x": [0b00000000, 0b00000111, 0b11111111], "b/y": [0b00000001, 0b00111111]}
    lost = ("b/y", 1, 7)  # an attempt at that task failed on our side
    made = [
        attempt(f, i, "infra_error" if (f, i, a) == lost else "ok" if bits >> a & 1 else "wrong", a)
        for f, tasks in passed.items()
        for i, bits in enumerate(tasks)
        for a in range(8)
    ]
    got = cmp.table({"eval": made})

    def brute(k: int, how: Any) -> float:
        means = []
        for f, tasks in passed.items():
            judged = [[bits >> a & 1 for a in range(8) if (f, i, a) != lost] for i, bits in enumerate(tasks)]
            shares = [[how(c) for c in itertools.combinations(j, k)] for j in judged if len(j) >= k]
            means.append(np.mean([np.mean(s) for s in shares]))
        return float(np.mean(means))

    assert got["overall"]["pass_at"]["eval"] == {str(k): pytest.approx(brute(k, any)) for k in (2, 4, 8)}
    assert got["overall"]["pass_all"]["eval"] == {str(k): pytest.approx(brute(k, all)) for k in (2, 4, 8)}
    assert got["families"]["a/x"]["pass_at"]["eval"]["8"] == pytest.approx(2 / 3)
    line = next(x for x in cmp.table_text(got).splitlines() if "pass@k" in x)
    assert f"8: {brute(8, any):.2f}; each of k (pass^k): 2: {brute(2, all):.2f}" in line
    json.dumps(got, allow_nan=False)


def test_one_attempt_a_task_has_no_chance_of_several() -> None:
    got = cmp.table({"eval": arm({"a/x": 0.5})})
    assert "pass_at" not in got["overall"] and "pass@k" not in cmp.table_text(got)
    assert 0 < got["families"]["a/x"]["rate_interval"]["eval"][0] < 1


def test_identical_runs_pass(tmp_path: Path) -> None:
    same = arm(dict.fromkeys(FAMILIES, 0.7))
    a = store(tmp_path / "a", eval=same)
    b = store(tmp_path / "b", eval=same)
    got = cmp.main(a, b)
    assert got["verdict"] == "PASS" and got["exit_code"] == 0 and got["text"].splitlines()[-1].startswith("PASS")
    assert "the drop is below 3 points" in got["reasons"][0]


def test_a_gain_is_not_called_a_drop(tmp_path: Path) -> None:
    a = store(tmp_path / "a", eval=arm(dict.fromkeys(FAMILIES, 0.2)))
    b = store(tmp_path / "b", eval=arm(dict.fromkeys(FAMILIES, 0.9)))
    got = cmp.main(a, b)
    assert got["verdict"] == "PASS" and got["lower_bound"] > 0.5 and got["reasons"][0].startswith("it rose by ")


def test_a_planted_drop_fails_and_names_its_family(tmp_path: Path) -> None:
    base = dict.fromkeys(FAMILIES, 0.9)
    a = store(tmp_path / "a", eval=arm(base, n=75, samples=8))
    b = store(tmp_path / "b", eval=arm(base | {"math/units": 0.5}, n=75, samples=8, seed=1))
    got = cmp.main(a, b)
    assert got["verdict"] == "FAIL" and got["exit_code"] == 1
    assert got["families_worse"] == ["math/units"] and "math/units" in got["text"].splitlines()[-1]


def test_an_even_drop_of_ten_points_fails(tmp_path: Path) -> None:
    a = store(tmp_path / "a", eval=arm(dict.fromkeys(FAMILIES, 0.8), n=75, samples=8))
    b = store(tmp_path / "b", eval=arm(dict.fromkeys(FAMILIES, 0.7), n=75, samples=8, seed=1))
    assert cmp.main(a, b)["exit_code"] == 1


def test_too_few_cases_are_inconclusive_and_say_how_many_decide(tmp_path: Path) -> None:
    a = store(tmp_path / "a", eval=arm(dict.fromkeys(FAMILIES, 0.8), n=25))
    b = store(tmp_path / "b", eval=arm(dict.fromkeys(FAMILIES, 0.77), n=25, seed=1))
    got = cmp.main(a, b, margin=0.03)
    assert got["verdict"] == "INCONCLUSIVE" and got["exit_code"] == 3
    assert got["tasks_needed"] > 4 * got["tasks"] and str(got["tasks_needed"]) in got["text"]


def test_samples_needed_are_given_where_samples_can_decide() -> None:
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.6, 0.9, size=160)

    def sampled(seed: int, k: int) -> list[Trajectory]:
        draw = np.random.default_rng(seed).random((160, k))
        return [
            attempt(FAMILIES[i % 4], i // 4, "ok" if draw[i, j] < rates[i] else "wrong", j) for i in range(160) for j in range(k)
        ]

    def verdict(k: int) -> dict[str, Any]:
        return judge(cmp._pairs(items(sampled(1, k)), items(sampled(2, k))), margin=0.025, seed=0)

    few = verdict(2)
    assert few["verdict"] == "INCONCLUSIVE" and few["samples_needed"] > 2
    assert verdict(4 * few["samples_needed"])["verdict"] == "PASS"


def test_false_alarms_stay_below_the_bar_when_nothing_changed() -> None:
    """1,000 pairs of evaluations of one policy: FAIL in at most 6.5 %."""
    rng = np.random.default_rng(2)
    template = items([attempt(f, i, "ok") for f in FAMILIES for i in range(32)])
    fails = 0
    for trial in range(1000):
        rates = rng.beta(2.2, 0.6, size=len(template))
        old, new = (rng.random((2, len(template))) < rates).astype(float)
        pairs = [
            (replace(item, pass_rate=float(x)), replace(item, pass_rate=float(y)))
            for item, x, y in zip(template.values(), old, new, strict=True)
        ]
        fails += judge(pairs, margin=0.001, seed=trial)["exit_code"] == 1
    assert 10 <= fails <= 65  # a test that can never fail would sit at 0


def test_a_bare_run_means_its_last_evaluation(tmp_path: Path) -> None:
    run = store(
        tmp_path / "r",
        before=arm(dict.fromkeys(FAMILIES, 0.1)),
        few_shot=arm(dict.fromkeys(FAMILIES, 0.2)),
        after_sft=arm(dict.fromkeys(FAMILIES, 0.5)),
    )
    assert cmp.load_arm(run)[0].endswith(":after_sft")
    assert cmp.main(f"{run}:before", run)["exit_code"] == 0
    assert cmp.main(run, f"{run}:before")["exit_code"] == 1
    with pytest.raises(UsageError, match="Did you mean 'after_sft'"):
        cmp.load_arm(f"{run}:after_stf")
    with pytest.raises(UsageError, match="holds no run"):
        cmp.load_arm(str(tmp_path / "nothing"))


def test_what_cannot_be_compared_is_invalid_never_a_pass(tmp_path: Path) -> None:
    full = arm(dict.fromkeys(FAMILIES, 0.9))
    a = store(tmp_path / "a", eval=full)
    hot = [replace(t, sampling=Sampling(temperature=1.0)) for t in full]
    edited = [attempt(full[0].task.environment, 0, "ok", prompt="another question"), *full[1:]]
    broken = [attempt(t.task.environment, i % 40, "infra_error" if i < 5 else "ok") for i, t in enumerate(full)]
    cases = {
        "one evaluation only": full[1:],
        "attempts twice": [*full, full[0]],
        "without a judgement": broken,
        "another prompt": edited,
        "different temperatures": hot,
    }
    for number, (reason, trajectories) in enumerate(cases.items()):
        got = cmp.main(a, store(tmp_path / str(number), eval=trajectories))
        assert got["exit_code"] == 4 and got["verdict"] == "INVALID", reason
        assert reason in got["text"]


def test_json_is_one_document_with_the_same_figures(tmp_path: Path) -> None:
    a = store(tmp_path / "a", eval=arm(dict.fromkeys(FAMILIES, 0.7)))
    got = cmp.main(a, a, as_json=True)
    document = json.loads(got["text"])
    assert document["verdict"] == got["verdict"] and document["comparison"]["overall"]["difference"] == 0.0


def test_a_margin_that_is_no_share_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"such as 0\.03"):
        cmp.main(str(tmp_path), str(tmp_path), margin=3)

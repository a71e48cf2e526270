"""Healthy ranges: what they hold, how they read, and that report and diagnosis have the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from posttrain.dashboard.curves import PANELS, stability
from posttrain.dashboard.diagnose import diagnose
from posttrain.dashboard.healthy import HEALTHY, Range
from posttrain.evals.compare import table_text
from posttrain.store.run_dir import RunDir


@pytest.mark.parametrize(
    ("healthy", "inside", "outside", "says"),
    [
        (Range(low=0.02, high=2.5), (0.02, 2.5), (0.01, 2.6), "0.02 to 2.5"),
        (Range(low=0.2), (0.2, 9.0), (0.1,), "above 0.2"),
        (Range(high=20.0), (-1.0, 20.0), (20.5,), "below 20"),
        (Range(high=0.0), (0.0,), (1.0,), "none"),
        (Range(), (-1e9, 1e9), (), ""),
    ],
)
def test_a_range(healthy: Range, inside: tuple[float, ...], outside: tuple[float, ...], says: str) -> None:
    assert all(map(healthy.holds, inside)) and not any(map(healthy.holds, outside)) and str(healthy) == says


def test_report_and_diagnosis_judge_by_one_table(tmp_path: Path) -> None:
    """Just outside each range both look alarmed, at its bound neither."""
    shared = {p.metric: p for p in PANELS if p.metric in HEALTHY and p.metric not in ("infra_errors", "rehearsal_loss")}
    assert len(shared) >= 7
    at_bound = {m: p.healthy.high if p.healthy.high is not None else p.healthy.low for m, p in shared.items()}
    beyond = {m: v * 1.1 if shared[m].healthy.high is not None else v * 0.9 for m, v in at_bound.items() if v is not None}
    for number, (figures, alarmed) in enumerate(((at_bound, 0), (beyond, len(shared)))):
        with RunDir.create(tmp_path / str(number), {}) as run:
            run.write_metrics("rlvr", 0, figures)
            run.commit("rlvr", 0)
            assert sum(not f.healthy for f in diagnose(run)) == alarmed
            page = stability(run.metrics("rlvr"), [], [])
        assert page is not None and page.count("card panel watch") == alarmed
        assert "Healthy: 0.02 to 2.5." in page


def test_stages_have_one_name_each() -> None:
    from posttrain.dashboard.outcome import labels

    assert labels(["before", "few_shot", "after_rl", "my_stage"]) == {
        "before": "before", "few_shot": "few-shot", "after_rl": "after RLVR", "my_stage": "my stage",
    }  # fmt: skip
    assert labels(["few_shot"], {"few_shot": 3}) == {"few_shot": "3-shot"}
    cells = {"num_families": 1, "pass_rate": {"after_sft": None}}
    told = {"columns": ["after_sft"], "comparisons": [], "families": {}, "overall": cells, "transfer": None, "unjudged": {}}
    assert "after SFT" in table_text(told)

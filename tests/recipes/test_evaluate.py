"""The evaluation recipe on a tiny model: what it reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from posttrain.cli import main

RECIPE = """
recipe = "evaluate"
model = "{model}"
eval_tasks = 4
samples = 4
temperature = 1.0
environments = [{{ name = "logic/pick_extreme" }}]
"""


def test_several_samples_report_the_chance_of_one_and_of_each(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(RECIPE.format(model=tiny_model))
    with pytest.raises(SystemExit) as left:
        main(["eval", "run", str(tiny_model), "--recipe", "mine.toml", "--json", "--out", "measured"])
    assert left.value.code == 0
    result = json.loads(capsys.readouterr().out)
    assert result["difference"] is None and result["interval"] is None
    assert list(result["overall"]["pass_at"]["eval"]) == list(result["overall"]["pass_all"]["eval"]) == ["2", "4"]
    assert "pass@k" in json.loads(Path("measured/results.json").read_text())["table"]
    assert "one evaluation, nothing to compare with" in Path("measured/report.html").read_text()

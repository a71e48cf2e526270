"""Every example runs for two steps on a model made on the spot, and the notebook from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import posttrain
from posttrain import options
from posttrain.progress import Progress
from posttrain.store.run_dir import RunDir

EXAMPLES = Path(__file__).parent.parent / "examples"
GSM8K = EXAMPLES.parent.parent / "shared" / "data" / "gsm8k" / "train.jsonl"
SMALL: dict[str, Any] = {
    "steps": 2,
    "tasks_per_step": 2,
    "group_size": 2,
    "eval_tasks": 4,
    "precision": "exact",
    "warm_up": {"steps": 1, "rows_per_step": 2, "rejection_tasks": 1, "rejection_samples": 1},
}
DATA = {"my_data": {"data": EXAMPLES / "data" / "rows.jsonl", "reward": EXAMPLES / "data" / "reward.py"}}


RECIPES = [
    pytest.param(p, id=p.stem, marks=pytest.mark.slow if p.stem == "functions" else ())  # its verdicts start sandboxes
    for p in sorted(EXAMPLES.glob("*.toml"))
]


@pytest.mark.parametrize("path", RECIPES)
def test_an_example_runs(path: Path, tiny_model: Path, tmp_path: Path) -> None:
    own = {k: str(v) for k, v in DATA.get(path.stem, {}).items()}
    if path.stem == "gsm8k":
        rows = tmp_path / "train.jsonl"
        rows.write_text("".join(json.dumps(_sum(n)) + "\n" for n in range(120)))
        own["data"] = str(rows)
    posttrain.run(path, out=tmp_path / "run", progress=Progress(quiet=True), model=str(tiny_model), **SMALL, **own)
    run = RunDir.open(tmp_path / "run")
    assert run.status == "finished" and len(run.metrics("rlvr")) == 2


def test_the_quickstart_runs_on_any_model(tiny_model: Path, tmp_path: Path) -> None:
    changes = {**SMALL, "warm_up": {"steps": 1, "rows_per_step": 8, "rejection_tasks": 0, "rejection_steps": 0}}
    posttrain.run("quickstart", out=tmp_path / "run", progress=Progress(quiet=True), model=str(tiny_model), minutes=0, **changes)
    run = RunDir.open(tmp_path / "run")
    trained = {t.task.environment for t in run.trajectories("warm_up")}
    assert len(trained) == 8  # each family of the recipe
    assert len({t.task.environment for t in run.trajectories("before")}) == 11


def test_the_quickstart_is_what_it_says() -> None:
    table = options.load("quickstart")
    families = [e["name"] for e in table["environments"]]
    held = [e["name"] for e in table["transfer"]]
    assert len(families) >= 8 and len(held) * 4 >= len(families) + len(held) and not set(families) & set(held)
    assert len({name.split("/")[0] for name in families + held}) >= 5
    assert table["eval_tasks"] >= 30
    assert table["warm_up"]["steps"] * table["warm_up"]["rows_per_step"] <= 100


@pytest.mark.skipif(not GSM8K.is_file(), reason="the GSM8K rows are not beside this checkout (shared/data/gsm8k)")
def test_real_gsm8k_rows_are_read_and_their_own_answers_judged_right(tiny_model: Path, one_loop: Any) -> None:
    from posttrain.models.load import load_renderer
    from posttrain.rollout.scripted import replay

    recipe = options.recipe(options.load(EXAMPLES / "gsm8k.toml", data=str(GSM8K)), "gsm8k")
    (rows,) = recipe.training_environments()
    tasks = list(rows.tasks())
    assert len(tasks) > 7_400
    renderer = load_renderer(tiny_model)
    for task in tasks[:100]:
        reference = rows.reference(task)
        assert reference is not None and "<<" not in reference.turns[0].content
        judged = one_loop(replay(rows, task, reference, renderer))
        assert judged.verdict.status == "ok", (task.answer, judged.final_text)


@pytest.mark.slow
def test_the_notebook_runs(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    book = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    monkeypatch.setenv("POSTTRAIN_EXAMPLE_MODEL", str(tiny_model))
    monkeypatch.setenv("POSTTRAIN_EXAMPLE_STEPS", "2")
    nbclient.NotebookClient(book, timeout=240, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = json.dumps([c.get("outputs", []) for c in book.cells])
    assert "after RLVR" in outputs


@pytest.fixture
def one_loop() -> Any:
    import asyncio

    with asyncio.Runner() as runner:
        yield runner.run


def _sum(n: int) -> dict[str, str]:
    return {
        "question": f"Ann has {n} pears and buys {n % 7}. How many now?",
        "answer": f"{n}+{n % 7}=<<{n}+{n % 7}={n + n % 7}>>{n + n % 7}\n#### {n + n % 7}",
    }

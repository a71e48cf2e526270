"""``posttrain eval``: measure a model, compare two runs, plan how many tasks a comparison needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posttrain.cli.jobs import AsJson, Out, Overrides, Seed, start
from posttrain.cli.output import put

Margin = Annotated[float, typer.Option("--margin", help="The drop that matters, as a share: 0.03 is three points.")]


def add(app: typer.Typer) -> None:
    """Adds these commands to ``app``, under ``eval``."""
    group = typer.Typer(help="Measure a model, compare two runs, plan a comparison.", no_args_is_help=True, rich_markup_mode=None)
    group.command("run")(run)
    group.command("compare")(compare)
    group.command("power")(power)
    app.add_typer(group, name="eval")


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model's name or folder, or a run's directory.")],
    overrides: Overrides = None,
    recipe: Annotated[str, typer.Option("--recipe", help="What to measure on: a recipe's name or .toml file.")] = "evaluate",
    seed: Seed = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Evaluates a model on held-out tasks, all trajectories kept."""
    exported = Path(model) / "model"
    chosen = str(exported.absolute()) if (Path(model) / "run.json").is_file() else model
    start(recipe, [f"model={chosen}", *(overrides or [])], seed=seed, out=out, as_json=as_json)


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="The run before: its directory, or directory:stage.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The run after.")],
    margin: Margin = 0.03,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the bootstrap.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Says whether B is worse than A: PASS (0), FAIL (1), INCONCLUSIVE (3) with the tasks needed, or INVALID (4)."""
    from posttrain.evals.compare import main

    put(main(a, b, margin=margin, as_json=as_json, seed=seed), as_json=as_json)


def power(
    items: Annotated[int, typer.Option("--items", help="Held-out tasks.")] = 256,
    samples: Annotated[int, typer.Option("--samples", help="Answers a task.")] = 1,
    margin: Margin = 0.03,
    as_json: AsJson = False,
) -> None:
    """Says how surely a comparison of this size sees a drop, and what size would."""
    from posttrain.evals.power import main

    put(main(items, samples, margin), as_json=as_json)

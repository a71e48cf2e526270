"""Commands that start a job, go on with one, or use what one left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from posttrain.cli.output import put, put_job, put_json
from posttrain.errors import UsageError

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options over the recipe's, such as train.lr=1e-5.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output; progress on standard error.")]
Out = Annotated[Path | None, typer.Option("--out", help="The run's directory (default: a new one under runs/).")]
Seed = Annotated[int | None, typer.Option("--seed", help="The run's seed; the same as seed=N.")]
Minutes = Annotated[float | None, typer.Option("--minutes", min=0.0, help="A time budget; the same as minutes=M.")]
RunArg = Annotated[str, typer.Argument(metavar="RUN", help="A run's directory.")]
Source = Annotated[str, typer.Argument(metavar="RECIPE", help="A shipped recipe's name, or a .toml file.")]


def add(app: typer.Typer) -> None:
    """Adds these commands to ``app``."""
    for function in (quickstart, preview, run, resume, export, chat, report, diagnose):
        app.command()(function)


def quickstart(
    overrides: Overrides = None, minutes: Minutes = None, seed: Seed = None, out: Out = None, as_json: AsJson = False
) -> None:
    """Takes a small real model through post-training on this machine and shows the gain."""
    start("quickstart", overrides, minutes=minutes, seed=seed, out=out, as_json=as_json)


def run(
    source: Source,
    overrides: Overrides = None,
    minutes: Minutes = None,
    seed: Seed = None,
    out: Out = None,
    print_it: Annotated[bool, typer.Option("--print", help="Print the recipe's TOML, ready to copy, and start nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Runs a recipe: a shipped one by name, or a file of your own."""
    if print_it:
        from posttrain.options import load

        given = [*(overrides or []), *_budget(minutes, seed)]
        if as_json:
            put_json(load(source, given))
        else:
            print(recipe_text(source, given), end="")
        return
    start(source, overrides, minutes=minutes, seed=seed, out=out, as_json=as_json)


def resume(run: RunArg, as_json: AsJson = False) -> None:
    """Goes on with an interrupted run from its last saved step."""
    import posttrain

    put_job(posttrain.resume(run), as_json=as_json)


def preview(source: Source, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Shows what a recipe would do: prompts, sampled answers, rewards, predicted time, memory that one step took."""
    from posttrain.progress import Progress
    from posttrain.recipes.preview import main

    with Progress() as progress:
        result = main(source, overrides=tuple(overrides or ()), progress=progress)
    put(result, as_json=as_json)


def export(
    run: RunArg,
    out: Annotated[Path | None, typer.Option("--out", help="Where the model goes (default: it stays in RUN/model).")] = None,
    as_json: AsJson = False,
) -> None:
    """Writes a run's model in Hugging Face format and prints the lines that serve it."""
    from posttrain.recipes.export import main

    put(main(run, out=None if out is None else str(out)), as_json=as_json)


def chat(
    model: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory, or a model's name or folder.")],
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")] = 0.7,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="The longest answer.")] = 256,
) -> None:
    """Talks with a model in the terminal; /clear forgets, /exit (or the end of input) leaves."""
    from posttrain.cli.keyboard import lines
    from posttrain.recipes.chat import main

    main(model, lines=lines(), out=sys.stdout, temperature=temperature, max_tokens=max_tokens)


def report(
    run: RunArg,
    out: Annotated[Path | None, typer.Option("--out", help="The file (default: RUN/report.html).")] = None,
    as_json: AsJson = False,
) -> None:
    """Writes a run's report, one HTML file that needs no network."""
    from posttrain.dashboard.report import write_report
    from posttrain.store.run_dir import RunDir

    path = write_report(RunDir.open(run), out or Path(run) / "report.html")
    put({"report": str(path), "text": f"report: {path}"}, as_json=as_json)


def diagnose(run: RunArg, as_json: AsJson = False) -> None:
    """Says why a run's reward stalls: each figure, its healthy range, and the option to change."""
    from posttrain.dashboard.diagnose import main

    put(main(run, as_json=as_json), as_json=as_json)


def start(
    source: str, overrides: list[str] | None, *, seed: int | None, out: Path | None, as_json: bool, minutes: float | None = None
) -> None:
    """Runs a recipe and prints its results."""
    import posttrain

    for name in ("out", "json"):
        if any(text.startswith(f"{name}=") for text in overrides or ()):
            raise UsageError(f"{name!r} is an option of the command, not of the recipe: give it as --{name}")

    put_job(posttrain.run(source, *(overrides or []), *_budget(minutes, seed), out=out), as_json=as_json)


def recipe_text(source: str, overrides: list[str]) -> str:
    """The recipe's own text with its comments; resolved to one table where it extends another or has overrides."""
    from posttrain.options import load, source_path, to_toml

    if not overrides and not source.endswith(".py"):
        text = source_path(source).read_text(encoding="utf-8")
        if not any(line.strip().startswith("extends") for line in text.splitlines()):
            return text
    return to_toml(load(source, overrides))


def _budget(minutes: float | None, seed: int | None) -> list[str]:
    return [f"{name}={value}" for name, value in (("minutes", minutes), ("seed", seed)) if value is not None]

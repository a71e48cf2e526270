"""All commands under one name."""

from __future__ import annotations

import functools
from typing import Annotated, Any

import typer

from posttrain.cli import catalogue, doctor, evaluation, jobs


def version(wanted: bool) -> None:
    """Prints the version and leaves."""
    if wanted:
        import posttrain

        print(f"posttrain {posttrain.__version__}")
        raise typer.Exit()


@functools.cache
def command() -> Any:
    """The command that ``posttrain`` runs, a click command."""
    app = typer.Typer(
        help="From a base model to one that finishes tasks. Start with: posttrain quickstart",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def root(
        show_version: Annotated[
            bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
        ] = False,
    ) -> None:
        pass

    for module in (jobs, evaluation, catalogue, doctor):
        module.add(app)
    return typer.main.get_command(app)

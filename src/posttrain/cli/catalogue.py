"""Commands about plug-ins: list them, check one against its contract, look at an environment's task."""

from __future__ import annotations

import importlib
import itertools
from dataclasses import fields
from typing import Annotated, Any

import typer

from posttrain import plugins
from posttrain.cli.jobs import AsJson, Overrides
from posttrain.cli.output import put
from posttrain.errors import EXIT_OK, EXIT_REGRESSION, UsageError, nearest

Kind = Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(plugins.kinds())}.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A plug-in's name, or path.py, or path.py:Class.")]


def add(app: typer.Typer) -> None:
    """Adds these commands to ``app``."""
    app.command("list")(list_)
    app.command("check")(check)
    group = typer.Typer(help="Look at environments.", no_args_is_help=True, rich_markup_mode=None)
    group.command("show")(show)
    app.add_typer(group, name="env")


def list_(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="Leave out for the kinds themselves.")] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One plug-in, with its options.")] = None,
    as_json: AsJson = False,
) -> None:
    """Lists plug-ins of a kind, or one plug-in's options."""
    if kind is None:
        counts = {k: len(plugins.names(k)) for k in plugins.kinds()}
        put({"kinds": counts, "text": "\n".join(f"{k:12} {n}" for k, n in counts.items())}, as_json=as_json)
        return
    if name is not None:
        put(described(kind, name), as_json=as_json)
        return
    found = plugins.summaries(kind)
    width = max((len(n) for n in found), default=0)
    text = "\n".join(f"{n:{width}}  {what}" for n, what in found.items()) or f"There are no {kind} yet."
    put({"kind": kind, "names": list(found), "summaries": found, "text": text}, as_json=as_json)


def described(kind: str, name: str) -> dict[str, Any]:
    """A plug-in's help: its docstring, and its fields with their types and defaults."""
    cls = plugins.find(kind, name)
    options = []
    for f in fields(cls):
        if f.init:
            default = plugins.option(cls, f.name)[1]
            options.append(
                {
                    "name": f.name,
                    "type": f.type if isinstance(f.type, str) else getattr(f.type, "__name__", str(f.type)),
                    "default": None if default is None else repr(default),
                }
            )
    help_text = "\n".join(line.strip() for line in (cls.__doc__ or "").strip().splitlines())
    lines = [f"  {o['name']}: {o['type']}" + (f" = {o['default']}" if o["default"] else "") for o in options]
    return {"kind": kind, "name": name, "help": help_text, "options": options, "text": "\n".join([help_text, "", *lines])}


def check(kind: Kind, name: Name, options: Overrides = None, as_json: AsJson = False) -> None:
    """Runs the contract of a kind on one plug-in; exit code 1 when it fails."""
    from posttrain.options import assignments

    known = sorted(p.stem for p in (plugins.HOME / "contracts").glob("*.py") if not p.stem.startswith("_"))
    if kind not in known:
        plugins.names(kind)  # says so where there is no such kind
        raise UsageError(f"there is no contract for {kind} yet.{nearest(kind, known)}")
    plugin = plugins.from_table(kind, {**assignments(options or []), "name": name}, where="command line")
    failures = list(importlib.import_module(f"posttrain.contracts.{kind}").check(plugin))
    text = "\n".join(
        [
            *(f"FAILED: {x}" for x in failures),
            f"{kind} {name}: {len(failures)} failures" if failures else f"{kind} {name}: passed",
        ]
    )
    code = EXIT_REGRESSION if failures else EXIT_OK
    put(
        {"kind": kind, "name": name, "passed": not failures, "failures": failures, "exit_code": code, "text": text},
        as_json=as_json,
    )


def show(
    name: Name,
    options: Overrides = None,
    level: Annotated[int, typer.Option("--level", help="How hard, 0-9.")] = 0,
    seed: Annotated[int, typer.Option("--seed", help="Which task of that level.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Shows one task of an environment: what the policy sees, the reference answer, answers that must fail."""
    from posttrain.envs._base import Family
    from posttrain.options import assignments
    from posttrain.store.records import encode

    environment = plugins.from_table("envs", {**assignments(options or []), "name": name}, where="command line")
    answers: dict[str, Any] = {}
    if isinstance(environment, Family):
        if level not in environment.levels:
            last = environment.levels.stop - 1
            raise UsageError(f"{name} has no level {level}; its levels are {environment.levels.start} to {last}")
        task = environment.generate(seed, level)
        answers = {"oracle": environment.oracle(task), "decoys": environment.decoys(task)}
    else:
        found = list(itertools.islice(environment.tasks(), seed, seed + 1))
        if not found:
            raise UsageError(f"{name} has fewer than {seed + 1} tasks; give a smaller --seed")
        task = found[0]
    lines = [f"task {task.id}", *(f"--- {m.role}\n{m.content}" for m in task.prompt)]
    lines += [f"--- tool {t.name}: {t.description} {dict(t.parameters)}" for t in task.tools]
    lines += ["--- answer (the policy never sees it)", str(task.answer)]
    if answers:
        lines += ["--- oracle", _said(answers["oracle"]), *(f"--- decoy: {d.note}\n{_said(d)}" for d in answers["decoys"])]
    shown = {
        "task": encode(task),
        "oracle": _turns(answers.get("oracle")),
        "decoys": [_turns(d) for d in answers.get("decoys", [])],
    }
    put({**shown, "text": "\n".join(lines)}, as_json=as_json)


def _said(response: Any) -> str:
    lines = []
    for message in response.turns:
        lines += [message.content] if message.content else []
        lines += [f"[call {c.name} {dict(c.arguments)}]" for c in message.tool_calls]
    return "\n".join(lines)


def _turns(response: Any) -> list[dict[str, Any]]:
    if response is None:
        return []
    return [
        {"content": m.content, "tool_calls": [{"name": c.name, "arguments": dict(c.arguments)} for c in m.tool_calls]}
        for m in response.turns
    ]

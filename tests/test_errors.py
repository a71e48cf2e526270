"""The table of errors: whose fault, which exit code, and messages that say what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posttrain import errors, plugins

FILES = sorted(plugins.HOME.rglob("*.py"))


def test_exit_codes_are_those_of_the_table() -> None:
    table = {
        errors.PosttrainError: 70,
        errors.UsageError: 2,
        errors.InvalidRun: 4,
        errors.HostError: 5,
        errors.InfraError: 4,
        errors.DeadlineExceeded: 4,
        errors.WorkerLost: 4,
        errors.Interrupted: 130,
    }
    assert {cls: cls.exit_code for cls in table} == table
    assert (errors.EXIT_OK, errors.EXIT_REGRESSION, errors.EXIT_INCONCLUSIVE) == (0, 1, 3)


def test_a_deadline_names_its_wait() -> None:
    error = errors.DeadlineExceeded("reading rows", 2.5)
    assert str(error) == "reading rows did not finish within 2.5 s"
    assert (error.what, error.seconds) == ("reading rows", 2.5)


def test_tool_errors_have_one_renderer() -> None:
    for code, text in errors.TOOL_ERRORS.items():
        assert str(errors.ToolError(code)) == f"error {code}: {text}"
        assert str(errors.ToolError(code, "why")) == errors.render_tool_error(code, "why") == f"error {code}: {text}: why"
    with pytest.raises(KeyError, match="E_NONE"):
        errors.ToolError("E_NONE")


def test_what_the_policys_program_does_wrong_is_wrong() -> None:
    from typing import get_args

    from posttrain.sandboxes._base import ExecStatus

    assert set(errors.EXEC_STATUS) == set(get_args(ExecStatus))
    assert {k for k, v in errors.EXEC_STATUS.items() if v == "infra_error"} == {"sandbox_lost", "infra_error", "aborted"}
    assert [k for k, v in errors.EXEC_STATUS.items() if v == "ok"] == ["ok"]


def test_nearest() -> None:
    assert errors.nearest("lrr", ["lr", "betas"]) == " Did you mean 'lr'?"
    assert errors.nearest("zzz", ["lr", "betas"]) == " Known: betas, lr."
    assert errors.nearest("zzz", []) == ""
    assert errors.nearest("zzz", [f"{i:03}" for i in range(30)]).endswith("019 ....")


def said(path: Path) -> Iterator[str]:
    """The texts of a file that may reach a user: all strings but docstrings."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(node.body[0] if node.body else None, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """What advice may name: options by table, recipes, commands and their flags."""
    from posttrain.cli.app import command
    from posttrain.engines.native import Native
    from posttrain.envs.rows import Rows
    from posttrain.recipes._warm_up import WarmUp
    from posttrain.train.policy import Policy

    tables: dict[str, Any] = {"engine": Native, "train": Policy, "warm_up": WarmUp, "rows": Rows}
    commands = dict(command().commands)
    flags = {flag for p in command().params for flag in p.opts} | {"--help"}
    inner = {name: c for each in commands.values() for name, c in getattr(each, "commands", {}).items()}
    flags |= {flag for c in (*commands.values(), *inner.values()) for p in c.params for flag in p.opts}
    return {
        **{name: set(plugins.field_types(cls)) for name, cls in tables.items()},
        "recipe": set(plugins.names("recipes")),
        "command": set(commands),
        "flag": flags,
    }


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(plugins.HOME)))
def test_advice_names_only_what_exists(path: Path, known: dict[str, set[str]]) -> None:
    """An option, a recipe, a command or a flag that a message tells someone to use."""
    wrong = []
    for text in said(path):
        named = re.findall(r"(?<![\w./])(engine|train|warm_up|rows)\.([a-z_]+)(?![\w(.])", text)
        named += [("recipe", name) for name in re.findall(r'recipe = "(\w+)"', text)]
        named += [("command", name) for name in re.findall(r"[\'`]posttrain ([a-z]+)", text)]
        named += [("flag", flag) for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text) if "pip " not in text]
        wrong += [f"{kind} {name}: {text[:80]!r}" for kind, name in named if name not in known[kind]]
    assert not wrong

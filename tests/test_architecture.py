"""The shape of the house: imports point down, files and functions stay small, nothing heavy at import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "posttrain"
FILES = sorted(SRC.rglob("*.py"))

ROWS = {
    "cli": 9,
    "recipes": 8,
    "evals": 7,
    "flywheel": 7,
    "serve": 7,
    "contracts": 7,
    "rollout": 6,
    "envs": 5,
    "train": 5,
    "verifiers": 4,
    "engines": 3,
    "dashboard": 3,
    "sandboxes": 2,
    "losses": 2,
    "advantages": 2,
    "pools": 2,
    "datasets": 2,
    "models": 2,
    "attention": 2,
    "store": 2,
    "plan": 2,
    "plugins": 1,
    "options": 1,
    "render": 1,
    "progress": 1,
    "processes": 1,
    "types": 0,
    "errors": 0,
}
LONG_FILES: dict[str, str] = {}  # path -> reason
LONG_FUNCTIONS: dict[str, str] = {}  # path:function -> reason
FORBIDDEN_NAMES = {"utils", "common", "helpers", "manager"}


def room(path: Path) -> str:
    """The part of the house that a file belongs to."""
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> set[str]:
    """Dotted names of everything that a module imports from posttrain."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            names |= {f"{node.module}.{a.name}" for a in node.names if node.module == "posttrain"}
    return {n for n in names if n.startswith("posttrain.")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_down(path: Path) -> None:
    here = room(path)
    if here in {"__init__", "__main__"}:
        return
    assert here in ROWS, f"{path} has no room in the table; mend the table and docs/architecture.md"
    for name in imports(ast.parse(path.read_text())):
        there = name.split(".")[1]
        if there == here or (here, there) in {("types", "errors"), ("options", "plugins")}:
            continue
        assert ROWS.get(there, 99) < ROWS[here], f"{path}: {here} (row {ROWS[here]}) imports {name}"


def test_domains_do_not_import_each_other() -> None:
    for path in (SRC / "envs").rglob("*.py"):
        parts = path.relative_to(SRC / "envs").parts
        if len(parts) < 2 or parts[0].startswith("_"):
            continue
        for name in imports(ast.parse(path.read_text())):
            bits = name.split(".")
            if bits[1] == "envs" and len(bits) > 3:
                assert bits[2] == parts[0] or bits[2].startswith("_"), f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_files_and_functions_stay_small(path: Path) -> None:
    rel = str(path.relative_to(SRC))
    text = path.read_text()
    assert len(text.splitlines()) <= 400 or rel in LONG_FILES, f"{rel}: split it by what it names"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60 or f"{rel}:{node.name}" in LONG_FUNCTIONS, f"{rel}:{node.name} has {length} lines"


@pytest.mark.parametrize("path", sorted((SRC / "recipes").glob("*.py")), ids=lambda p: p.name)
def test_recipes_stay_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 200


def test_no_grab_bags() -> None:
    assert not [p for p in FILES if p.stem in FORBIDDEN_NAMES or "_part" in p.stem]


def test_public_parts_have_docstrings() -> None:
    missing = []
    for path in FILES:
        if path.name == "__init__.py" and not path.read_text().strip():
            continue
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree):
            missing.append(str(path.relative_to(SRC)))
        for node in tree.body:
            public = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"
            if public and not ast.get_docstring(node):  # type: ignore[arg-type]
                missing.append(f"{path.relative_to(SRC)}:{node.name}")  # type: ignore[union-attr]
    assert not missing


def test_import_loads_no_torch() -> None:
    code = (
        "import sys, posttrain, posttrain.cli; bad = {'torch', 'transformers', 'sympy', 'jsonschema'} & set(sys.modules); "
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

"""What a program's text must look like besides what it computes, read from its syntax tree; nothing of it ever runs here."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

NOT_COMPILED = "code does not compile"
MOST = 5_000  # characters: within them no text is dear to parse
GRANTED = {"bisect", "collections", "functools", "itertools", "math"}  # modules that a program under a shape may import
# Ways to run text, or to reach what the tree does not name: through them a program could have any shape that is not seen.
HIDING = {"exec", "eval", "compile", "getattr", "setattr", "globals", "locals", "vars", "open", "input", "breakpoint", "delattr"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DECISIONS = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)


def fault(text: str, shape: Mapping[str, Any]) -> str:
    """Why a program does not have the shape, "" where it has it, ``NOT_COMPILED`` where it is no program.

    ``without``: node types of ``ast`` ("For"), names ("map") and "recursion" that it must not use; ``complexity``: the most
    cyclomatic complexity of all of it; ``keeps``: statements that must stand in the body of a function, in that order.
    """
    if len(text) > MOST:
        return f"it is longer than {MOST:,} characters"
    try:
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        is_kept = _kept(nodes, shape.get("keeps", ()))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return NOT_COMPILED
    if hidden := next(_hidden(nodes), ""):
        return f"it uses {hidden}"
    if used := next(_used(nodes, set(shape.get("without", ()))), ""):
        return f"it uses {used}"
    if "complexity" in shape and (found := complexity(nodes)) > shape["complexity"]:
        return f"its cyclomatic complexity is {found}"
    if not is_kept:
        return "a line that was given is not in it as it was"
    return ""


def complexity(nodes: Sequence[ast.AST]) -> int:
    """McCabe's number, summed over all functions: 1 for each, and 1 for each place where the flow may part."""
    count = sum(isinstance(node, FUNCTIONS + DECISIONS) for node in nodes)
    for node in nodes:
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def _hidden(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Names and imports through which more could run than stands in the text."""
    for node in nodes:
        for name in _names(node):
            if name in HIDING or name.startswith("__") or (name.startswith("_") and not isinstance(node, ast.Name)):
                yield name
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or "."] if isinstance(node, ast.ImportFrom) else []
        yield from (f"the module {module}" for module in modules if module not in GRANTED)


def _used(nodes: Sequence[ast.AST], without: set[str]) -> Iterator[str]:
    for node in nodes:
        if (kind := type(node).__name__) in without:
            yield kind
        yield from (name for name in _names(node) if name in without)
    if "recursion" in without:
        yield from ("recursion" for _ in _recursive(nodes))


def _recursive(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Functions of the text that lead back to themselves by name."""
    own: dict[str, ast.AST] = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            own[node.name] = node
        elif isinstance(node, ast.Assign | ast.NamedExpr | ast.AnnAssign) and isinstance(node.value, ast.Lambda):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            own |= {target.id: node.value for target in targets if isinstance(target, ast.Name)}
    uses = {name: {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and x.id in own} for name, node in own.items()}
    for name in own:
        reached, ahead = set[str](), set(uses[name])
        while ahead:
            reached |= ahead
            ahead = {used for other in ahead for used in uses[other]} - reached
        if name in reached:
            yield name


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    return [part for part in (node.name, node.asname) if part] if isinstance(node, ast.alias) else []


def _kept(nodes: Sequence[ast.AST], lines: Sequence[str]) -> bool:
    """Whether the lines stand, in order, among the statements of one function's body."""
    if not lines:
        return True
    wanted = [ast.dump(ast.parse(line.strip()).body[0]) for line in lines]
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            body = iter([ast.dump(statement) for statement in node.body])
            if all(line in body for line in wanted):
                return True
    return False

"""One program in two idioms: each comprehension of its code as a loop."""

from __future__ import annotations

import ast

COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp)


def comprehensions(code: str) -> int:
    """How many comprehensions and generator expressions there are."""
    return sum(isinstance(node, COMPREHENSIONS) for node in ast.walk(ast.parse(code)))


def with_loops(code: str) -> str:
    """The code of our own functions with a loop for each comprehension; its names ``out``, ``out2``, ... are new ones."""
    tree = ast.parse(code)
    made = 0
    for function in tree.body:
        assert isinstance(function, ast.FunctionDef)
        body: list[ast.stmt] = []
        for statement in function.body:
            found = [node for node in ast.walk(statement) if isinstance(node, COMPREHENSIONS)]
            for node in found:
                made += 1
                name = f"out{made if made > 1 else ''}"
                body += _loop(node, name)
                _Put(node, name).visit(statement)
            body.append(statement)
        function.body = body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Put(ast.NodeTransformer):
    """A name in place of one expression."""

    def __init__(self, node: ast.expr, name: str) -> None:
        self._node, self._name = node, name

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.Name(self._name, ast.Load()) if node is self._node else self.generic_visit(node)


def _loop(node: ast.ListComp | ast.GeneratorExp, name: str) -> list[ast.stmt]:
    """``[f(x) for x in xs if g(x)]`` as an empty list and a loop that fills it."""
    (part,) = node.generators
    start, add = ast.parse(f"{name} = []\n{name}.append(0)").body
    assert isinstance(add, ast.Expr) and isinstance(add.value, ast.Call)
    add.value.args = [node.elt]
    body: list[ast.stmt] = [add]
    for test in reversed(part.ifs):
        body = [ast.If(test, body, [])]
    return [start, ast.For(part.target, part.iter, body, [])]

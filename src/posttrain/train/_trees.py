"""Rows that share tokens: a tree of turns, each stored once, and its layout on the packed row.

Turns are the unit of sharing: a group shares its prompt, branches share all turns up to where they part. A chain of turns
without a fork is one segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from posttrain.types import Segment, Trajectory


@dataclass(slots=True)
class Node:
    """Tokens that follow their parent's; ``ends`` are the rows (indices of trajectories) that end here."""

    token_ids: tuple[int, ...] = ()
    children: dict[tuple[int, ...], Node] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Tree:
    """The rows of one batch that begin alike. ``size`` counts distinct tokens."""

    root: Node = field(default_factory=Node)
    size: int = 0
    rows: list[int] = field(default_factory=list)

    def cost(self, trajectory: Trajectory) -> int:
        """Tokens that adding it would add."""
        node: Node | None = self.root
        total = 0
        for turn in (t for t in trajectory.turns if t.token_ids):
            node = node.children.get(turn.token_ids) if node else None
            total += 0 if node else len(turn.token_ids)
        return total

    def add(self, row: int, trajectory: Trajectory) -> None:
        """Adds row number ``row``."""
        self.size += self.cost(trajectory)
        node = self.root
        for turn in (t for t in trajectory.turns if t.token_ids):
            node = node.children.setdefault(turn.token_ids, Node(token_ids=turn.token_ids))
        node.ends.append(row)
        self.rows.append(row)


@dataclass(slots=True)
class Layout:
    """Trees laid out one after the other: depth first, so that what follows a segment's tokens is what sees them.

    ``paths[row]`` are the (start, end) ranges of a row's tokens, in order.
    """

    token_ids: list[int] = field(default_factory=list)
    position_ids: list[int] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    paths: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def place(self, tree: Tree) -> None:
        """Appends a tree."""
        for top in tree.root.children.values():
            stack = [(top, -1, 0, [])]  # type: list[tuple[Node, int, int, list[tuple[int, int]]]]
            while stack:
                node, parent, depth, path = stack.pop()
                chain = list(_chain(node))
                start = len(self.token_ids)
                for link in chain:
                    self.token_ids.extend(link.token_ids)
                end = len(self.token_ids)
                self.position_ids.extend(range(depth, depth + end - start))
                self.segments.append(Segment(start, end, parent))
                here = [*path, (start, end)]
                for row in chain[-1].ends:
                    self.paths[row] = here
                index = len(self.segments) - 1
                below = [(child, index, depth + end - start, here) for child in chain[-1].children.values()]
                stack.extend(reversed(below))


def _chain(node: Node) -> Iterator[Node]:
    """``node`` and what follows it up to a fork or an end."""
    yield node
    while len(node.children) == 1 and not node.ends:
        node = next(iter(node.children.values()))
        yield node


def grow(trajectories: Sequence[Trajectory], rows: Sequence[int], *, max_tokens: int, share_prefix: bool) -> list[Tree]:
    """Trees of at most ``max_tokens`` over ``rows`` (indices into ``trajectories``, each within the budget)."""
    families: dict[tuple[object, ...], list[int]] = {}
    for row in rows:
        first = next(turn.token_ids for turn in trajectories[row].turns if turn.token_ids)
        families.setdefault(first if share_prefix else (row,), []).append(row)
    trees = []
    for family in families.values():
        tree = Tree()
        for row in sorted(family, key=lambda r: (-len(trajectories[r].token_ids), r)):
            if tree.size + tree.cost(trajectories[row]) > max_tokens:
                trees.append(tree)
                tree = Tree()
            tree.add(row, trajectories[row])
        trees.append(tree)
    return trees


def fill(trees: Sequence[Tree], max_tokens: int) -> list[list[Tree]]:
    """Bins of at most ``max_tokens``, first fit, largest tree first; the fullest bin comes first."""
    bins: list[list[Tree]] = []
    sizes: list[int] = []
    for tree in sorted(trees, key=lambda t: (-t.size, t.rows[0])):
        for i, size in enumerate(sizes):
            if size + tree.size <= max_tokens:
                bins[i].append(tree)
                sizes[i] += tree.size
                break
        else:
            bins.append([tree])
            sizes.append(tree.size)
    return [bins[i] for i in sorted(range(len(bins)), key=lambda i: (-sizes[i], i))]

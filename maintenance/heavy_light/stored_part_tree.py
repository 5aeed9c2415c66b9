"""A part tree at run time: its tree, the parts that its atoms read, and the views that its enumeration goes through.

An enumerated tree begins with nodes, from its top down. Each lowest node ends a *branch*. A row of the lowest node is
a *bucket* if the branch's nodes above have its key. The rows of a bucket are a product: one row of each *level*, times
the *factors*. The rows of several branches are a product for each row of the nodes that they have in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlfront.maintenance.ranked.index import RankedIndex
from sqlfront.maintenance.tree.view_tree import Tree, View
from sqlfront.planner.model.heavy_light import PartKey, PartTree


@dataclass
class StoredPartTree:
    """A part tree and its tree; the part that each atom reads, by its store's columns; whether an atom joins the other
    atoms' parts as they were before the store's change (0) or after it (1); its ranked trees, by the order's number."""

    planned: PartTree
    tree: Tree
    store_parts: dict[str, PartKey] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    ranked: dict[int, RankedIndex] = field(default_factory=dict)

    def top(self) -> View:
        """The view whose rows are enumerated first."""
        return self.tree.root.children[0]

    def listed(self) -> set[str]:
        """The variables of the rows that are enumerated."""
        return {variable for node in self.planned.root.walk() if node.connex for variable in node.variables}

    def branches(self) -> list[Branch]:
        """The branches, each after the branch before it from left to right."""
        paths = list(_paths(self.top(), ()))
        return [Branch(path, before) for before, path in zip(((), *paths), paths, strict=False)]


@dataclass(frozen=True)
class Branch:
    """The nodes from the top down to a lowest one, and those of the branch before; none of these for the first one."""

    path: tuple[View, ...]
    before: tuple[View, ...]

    @property
    def upper(self) -> View:
        """The view whose rows are the buckets."""
        return self.path[-1]

    @property
    def common(self) -> tuple[View, ...]:
        """The nodes in common with the branch before. The lowest one is the view *above*."""
        pairs = enumerate(zip(self.before, self.path, strict=False))
        return self.path[: next((place for place, (one, other) in pairs if one is not other), 0)]

    @property
    def guards(self) -> tuple[View, ...]:
        """The views that must have a bucket's key, and that no branch before has looked at."""
        return self.path[len(self.common) : -1]

    def levels(self) -> list[View]:
        """The views whose rows are enumerated under a bucket's, those right below it first."""
        return [child for child in self._children() if child.node.connex and not _is_node(child)]

    def factors(self) -> list[View]:
        """The views that have one row under a bucket's, and are not enumerated."""
        return [child for child in self._children() if not child.node.connex]

    def _children(self) -> Iterator[View]:
        for node in reversed(self.path[len(self.common) :]):
            yield from node.children


def _paths(node: View, above: tuple[View, ...]) -> Iterator[tuple[View, ...]]:
    """The paths of nodes from the top to the lowest ones below a node."""
    below = [child for child in node.children if _is_node(child)]
    if not below:
        yield (*above, node)
    for child in below:
        yield from _paths(child, (*above, node))


def _is_node(view: View) -> bool:
    """Whether rows are enumerated under the view's rows."""
    return any(child.node.connex for child in view.children)

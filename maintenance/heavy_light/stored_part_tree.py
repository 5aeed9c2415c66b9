"""A part tree at run time: its tree, the parts that its atoms read, and the views that its enumeration goes through.

An enumerated tree begins with a chain of nodes, from its top down. A row of the lowest node is a *bucket* if the nodes
above have its key. The rows of a bucket are a product: one row of each *level*, times the *factors*.
"""

from __future__ import annotations

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

    def nodes(self) -> list[View]:
        """The views whose variables rows are enumerated under: from `top` down to that whose rows are the buckets."""
        found = [self.top()]
        while below := [one for one in found[-1].children if any(child.node.connex for child in one.children)]:
            found.append(below[0])
        return found

    def levels(self) -> list[View]:
        """The views whose rows are enumerated under a bucket's, those right below it first."""
        nodes = self.nodes()
        children = (child for node in reversed(nodes) for child in node.children)
        return [child for child in children if child.node.connex and child not in nodes]

    def factors(self) -> list[View]:
        """The views that have one row under a bucket's, and are not enumerated."""
        return [child for node in self.nodes() for child in node.children if not child.node.connex]

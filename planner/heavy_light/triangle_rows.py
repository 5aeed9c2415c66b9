"""All rows of a triangle whose tables have further columns that are put out: the part trees of the listed triangles,
each a tree under whose pairs the rows of the tables are listed.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, section 4; a pair (a, b) of a table stands for its rows.
"""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.heavy_light.ring_rows import listed_ring
from sqlfront.planner.heavy_light.rings import Ring
from sqlfront.planner.model.heavy_light import PartTree, Union
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition


def triangle_rows(definition: Definition, plan: Plan) -> Union | None:
    """The strategy, if the query puts out all rows of a triangle of which a table has columns that do not join; else
    None.

    O(N^max(eps, 1-eps)) a change, O(N^1.5) space, O(1) delay.
    """
    ring = listed_ring(definition, plan.free, 3) if plan.shape == "cyclic" and not plan.projected else None
    if ring is None or all(len(atom.variables) == 2 for atom in definition.atoms):
        return None
    trees = _Trees(definition, ring)
    part_trees = (
        trees.listed("HHH", "H*", "H*", "H*"),
        trees.listed("LLL", "L*", "L*", "L*"),
        trees.closed("HL*", 2, "H*", "L*", "**"),
        trees.closed("*HL", 0, "**", "H*", "L*"),
        trees.closed("L*H", 1, "L*", "**", "H*"),
    )
    every = (column.name for atom in definition.atoms for column in atom.variables)
    bag = Node(tuple(dict.fromkeys((*plan.free, *every))), tuple(map(trees.leaf, range(3))), connex=True)
    return Union(ring, part_trees, Node((), (bag,), connex=True))


class _Trees(Ring):
    """The trees of part trees, over the edges R(a, b), S(b, c), T(c, a)."""

    def listed(self, name: str, *parts: str) -> PartTree:
        """All three joined at once, by the shortest lists."""
        return self._part_tree(name, parts, self._join(*range(3)))

    def closed(self, name: str, closing: int, *parts: str) -> PartTree:
        """The join of the two other edges, under the pairs of one that close it."""
        edge = self.ring[closing]
        pair = self._join(closing + 1, closing + 2)
        return self._part_tree(name, parts, Node((edge.first, edge.second), (self._side(closing), pair), connex=True))

    def _join(self, *edges: int) -> Node:
        """The edges joined by their pairs."""
        first = edges[0]
        variables = tuple(self.ring[i % 3].first for i in (first, first + 1, first + 2))
        return Node(variables, tuple(map(self._side, edges)), connex=True)

    def _side(self, i: int) -> Node:
        """The pairs of an edge: its leaf, or with the rows of a wider table under them."""
        leaf, edge = self.leaf(i), self.ring[i % 3]
        if len(leaf.variables) == 2:
            return leaf
        return Node((edge.first, edge.second), (replace(leaf, connex=True),), connex=True)

    def _part_tree(self, name: str, parts: tuple[str, ...], top: Node) -> PartTree:
        own = tuple((edge.atom, part) for edge, part in zip(self.ring, parts, strict=True))
        return PartTree(name, own, Node((), (top,), connex=True), "enumerated")

"""The trees that may keep a part of a ring: bags of three variables, each the join of two paths along the ring.

A path from x to y is an edge, or two shorter paths that meet in a variable between. Two paths close the ring under
their ends x and y. What hangs on a variable is joined where the variable is summed out, or at the ends of the closing
paths: there with both, or above them, under one end alone, where its change costs O(1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlfront.planner.heavy_light.hung_ring import HungRing
from sqlfront.planner.heavy_light.ring import Ring
from sqlfront.planner.model.heavy_light import Reading
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Definition


@dataclass(frozen=True)
class Candidate:
    """A tree that a part tree may have, and how it is read. `ends` are the variables under which a tree lists rows that
    may come again; none if each row comes once. A read finds the ends of a row by its variables `first`: those that are
    listed first."""

    root: Node
    reading: Reading
    ends: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


class RingTrees(Ring):
    """The candidates for a query over a ring. Its output is all rows (`listed`), or sums by the variables `by`: of the
    ring, or of what hangs on it."""

    def __init__(self, definition: Definition, ring: HungRing, *, listed: bool, by: tuple[str, ...] = ()) -> None:
        super().__init__(definition, ring.edges)
        self._hung, self._listed, self._by, self._size = ring, listed, by, len(ring.edges)
        self._variables = ring.variables
        self._schemes = {atom: tuple(column.name for column in definition.atom(atom).variables) for atom in ring.hung}

    def candidates(self) -> Iterator[Candidate]:
        """All trees, those without repeated rows first."""
        for tree in self._closed():
            yield Candidate(Node((), (self._output(tree),), connex=True), self._reading)
        if self._by:
            yield from self._repeating()

    @property
    def _reading(self) -> Reading:
        return Reading.ENUMERATED if self._listed else Reading.SHARED

    def _closed(self) -> Iterator[Node]:
        for i in range(self._size):
            for j in range(i + 1, self._size):
                if min(j - i, self._size - (j - i)) < self._size // 2 - 1:
                    continue  # Such a long path is no better than one that is closed in its middle.
                ends = self._variables[i], self._variables[j]
                for paths in self._closing(i, j):
                    hung = [corner for corner in ends if corner in self._hung.at_corners]
                    for above in (None, *hung):
                        yield self._under(ends, paths, above)

    def _closing(self, i: int, j: int) -> Iterator[tuple[Node, ...]]:
        """The ways to close the ring between two variables; a triangle also by all its edges at once."""
        for there in self._paths(i, j - i):
            for back in self._paths(j, self._size - (j - i)):
                yield there, back
        if self._size == 3:
            (between,) = set(range(3)) - {i, j}
            edges = tuple(map(self._edge, range(3)))
            yield (self._node(self._variables, (*edges, *self._at(self._variables[between]))),)

    def _under(self, ends: tuple[str, str], paths: tuple[Node, ...], above: str | None) -> Node:
        hung = tuple(node for end in ends if end != above for node in self._at(end))
        closed = self._node(ends, (*paths, *hung))
        if len(paths) == 1 and not hung and (self._listed or set(closed.variables) == set(paths[0].variables)):
            closed = paths[0]
        return closed if above is None else self._node((above,), (*self._at(above), closed))

    def _paths(self, i: int, length: int, keep: bool = True) -> Iterator[Node]:
        """The trees of a path over so many edges from a variable on; `keep` those of its variables that are put out."""
        if length == 1:
            yield self._edge(i, keep)
            return
        start, end = self._variables[i % self._size], self._variables[(i + length) % self._size]
        for split in sorted({length // 2, length - length // 2}):
            middle = self._variables[(i + split) % self._size]
            for left in self._paths(i, split, keep):
                for right in self._paths(i + split, length - split, keep):
                    parts = self._shortened(left), self._shortened(right)
                    yield self._node((start, middle, end), (*parts, *self._at(middle)), keep)

    def _shortened(self, path: Node) -> Node:
        """A path as a part of a longer one: of rows to be enumerated, with a node of its ends above, so that a change
        lists its ends alone."""
        if not self._listed or len(path.variables) == 2:
            return path
        return Node((path.variables[0], path.variables[2]), (path,), connex=True)

    def _repeating(self) -> Iterator[Candidate]:
        """The trees in which rows are listed under the ends of two paths, and come again under other ends. The rows
        are those of one path, or the products of both paths if both have columns that are put out."""
        for i in range(self._size):
            for length in range(2, self._size):
                ends = self._variables[i], self._variables[(i + length) % self._size]
                hung = [node for end in ends for node in self._at(end)]
                shown = [node for node in hung if set(self._by).intersection(node.variables) - set(ends)]
                aside = tuple(node for node in hung if node not in shown)
                for path in self._paths(i, length):
                    there = self._once(ends, self._node(path.variables, (*path.children, *shown)))
                    missing = set(self._by) - set(there.variables)
                    if missing and i + length < self._size:
                        for back in self._paths(i + length, self._size - length):
                            if missing <= set(back.variables):
                                ways = self._once(ends, back), there
                                yield self._listing(ends, (*ways, *aside), ways[0])
                                yield self._listing(ends, (*ways[::-1], *aside), ways[1])
                    for back in self._paths(i + length, self._size - length, keep=False) if not missing else ():
                        closing = self._node(ends, (back, *aside), keep=False) if aside else back
                        yield self._listing(ends, (closing, there), there)

    def _listing(self, ends: tuple[str, str], children: tuple[Node, ...], first: Node) -> Candidate:
        root = Node((), (Node(ends, children, connex=True),), connex=True)
        return Candidate(root, Reading.ENUMERATED, ends, tuple(v for v in self._by if v in first.variables))

    def _once(self, ends: tuple[str, str], path: Node) -> Node:
        """A path that is enumerated under its ends: without variables that are not put out, so that under each pair of
        ends a row comes once."""
        shown = tuple(v for v in path.variables if v in ends or v in self._by)
        if len(shown) == len(path.variables):
            return replace(path, connex=True)
        return Node(shown, (path,), connex=True)

    def _edge(self, i: int, keep: bool = True) -> Node:
        hung = self._hung.at_edges.get(i % self._size, ())
        leaf = self.side(i) if self._listed else self.leaf(i)
        if not hung:
            return leaf
        edge = self.ring[i % self._size]
        own = replace(self.leaf(i), connex=self._listed)
        return self._node((edge.first, edge.second), (own, *map(self._leaf, hung)), keep)

    def _at(self, corner: str) -> tuple[Node, ...]:
        """The leaves of what hangs on a variable."""
        return tuple(map(self._leaf, self._hung.at_corners.get(corner, ())))

    def _leaf(self, atom: str) -> Node:
        return Node(self._schemes[atom], atom=atom, connex=self._listed)

    def _node(self, variables: tuple[str, ...], children: tuple[Node, ...], keep: bool = True) -> Node:
        """A node of these variables, and (`keep`) of those below that are put out."""
        below = {variable for child in children for variable in child.variables}
        shown = tuple(variable for variable in self._by if keep and variable in below)
        return Node(tuple(dict.fromkeys((*variables, *shown))), children, connex=self._listed)

    def _output(self, tree: Node) -> Node:
        if not self._by:
            return tree
        if set(tree.variables) == set(self._by):
            return replace(tree, variables=self._by, connex=True)
        return Node(self._by, (tree,), connex=True)

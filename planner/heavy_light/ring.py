"""Rings: atoms in rotation. Each atom shares one variable with the next atom and one with the atom before."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sqlfront.planner.model.heavy_light import Edge
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Definition


def find_ring(definition: Definition, size: int) -> tuple[Edge, ...] | None:
    """The atoms of a query in rotation, if they are a ring of `size`; else None. Atoms of a ring share no variables but
    those with their neighbours."""
    met = Counter(column.name for atom in definition.atoms for column in atom.variables)
    left = {atom.name: [column.name for column in atom.variables if met[column.name] > 1] for atom in definition.atoms}
    if len(left) != size or any(len(variables) != 2 for variables in left.values()):
        return None
    name, (first, here) = next(iter(left.items()))
    edges, start = [Edge(name, ((first,), (here,)))], first
    del left[name]
    while left:
        found = next((name for name, variables in left.items() if here in variables), None)
        if found is None:
            return None
        (after,) = [variable for variable in left.pop(found) if variable != here]
        edges.append(Edge(found, ((here,), (after,))))
        here = after
    closed = here == start and len({edge.first for edge in edges}) == size
    return tuple(edges) if closed else None


def listed_ring(definition: Definition, free: tuple[str, ...], size: int) -> tuple[Edge, ...] | None:
    """The edges of a ring of `size`, if a query that enumerates these variables puts out all rows of it; else None."""
    whole = definition.mode == "bag" or set(free) == set(all_variables(definition))
    return find_ring(definition, size) if free and whole else None


def all_variables(definition: Definition) -> tuple[str, ...]:
    """The variables of all atoms, each once."""
    return tuple(dict.fromkeys(column.name for atom in definition.atoms for column in atom.variables))


class Ring:
    """The edges of a ring, numbered in rotation, and the leaves of their atoms. A number beyond the last edge counts on
    from the first."""

    def __init__(self, definition: Definition, ring: tuple[Edge, ...]) -> None:
        self.ring = ring
        self._columns = [tuple(column.name for column in definition.atom(edge.atom).variables) for edge in ring]

    def leaf(self, i: int) -> Node:
        """The leaf of an edge."""
        return Node(self._columns[i % len(self.ring)], atom=self.ring[i % len(self.ring)].atom)

    def side(self, i: int) -> Node:
        """The pairs of an edge. A table with more columns lists its rows under each pair."""
        leaf, edge = self.leaf(i), self.ring[i % len(self.ring)]
        if len(leaf.variables) == 2:
            return leaf
        return Node((edge.first, edge.second), (replace(leaf, connex=True),), connex=True)

    def join(self, first: int, size: int = 2) -> Node:
        """So many edges from the first, joined by their pairs, all enumerated."""
        places = range(first, first + size)
        variables = tuple(dict.fromkeys(v for i in places for v in self._ends(i)))
        return Node(variables, tuple(map(self.side, places)), connex=True)

    def _ends(self, i: int) -> tuple[str, str]:
        edge = self.ring[i % len(self.ring)]
        return edge.first, edge.second

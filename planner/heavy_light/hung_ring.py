"""Rings with further tables that hang on them: by one variable of the ring, or by both of one edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlfront.planner.heavy_light.ring import find_ring
from sqlfront.planner.model.heavy_light import Edge
from sqlfront.planner.model.query import Definition

SMALLEST, LARGEST = 3, 6
"""Edges of a ring that is divided by the search for trees; the work grows as 2^n times the number of trees."""


@dataclass(frozen=True)
class HungRing:
    """The edges of a ring in rotation. `at_corners` are the atoms that share one variable with the ring, by variable;
    `at_edges` those that share both variables of an edge, by the edge's number. The first atom over a pair of variables
    is the edge itself: by its rows the values are heavy or light."""

    edges: tuple[Edge, ...]
    at_corners: Mapping[str, tuple[str, ...]] = field(hash=False)
    at_edges: Mapping[int, tuple[str, ...]] = field(hash=False)

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(edge.first for edge in self.edges)

    @property
    def hung(self) -> tuple[str, ...]:
        """All atoms that hang on the ring."""
        return tuple(atom for atoms in (*self.at_corners.values(), *self.at_edges.values()) for atom in atoms)

    @property
    def shared(self) -> dict[str, int]:
        """How many variables each hanging atom shares with the ring."""
        corners = {atom: 1 for atoms in self.at_corners.values() for atom in atoms}
        return corners | {atom: 2 for atoms in self.at_edges.values() for atom in atoms}

    def turned(self, turn: int) -> HungRing:
        """The ring from another edge on. ValueError if something hangs on an edge, whose numbers would change."""
        if turn and self.at_edges:
            raise ValueError("a ring with tables on its edges keeps its first edge")
        return replace(self, edges=self.edges[turn:] + self.edges[:turn])

    def pairs(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Each edge's atom with its two variables."""
        return ((edge.atom, (edge.first, edge.second)) for edge in self.edges)


def columns_by_key(definition: Definition, ring: HungRing) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """Of each hanging atom with a declared key among the variables that it shares with the ring: these variables, and
    its own columns, which they determine."""
    found = {}
    for name in ring.shared:
        atom = definition.atom(name)
        joined = atom.scheme & set(ring.variables)
        if any(key <= joined for key in atom.keys):
            found[name] = (joined, atom.scheme - joined)
    return found


def find_hung_ring(definition: Definition) -> HungRing | None:
    """The ring of a query with what hangs on it; None if the query is no ring of three to six edges, or if a table
    shares other variables than one of the ring or the two of an edge."""
    met = Counter(column.name for atom in definition.atoms for column in atom.variables)
    shared = {
        atom.name: frozenset(column.name for column in atom.variables if met[column.name] > 1)
        for atom in definition.atoms
    }
    first: dict[frozenset[str], str] = {}
    for atom, variables in shared.items():
        if len(variables) == 2:
            first.setdefault(variables, atom)
    chosen = tuple(atom for atom in definition.atoms if atom.name in first.values())
    ring = find_ring(replace(definition, atoms=chosen), len(chosen)) if SMALLEST <= len(chosen) <= LARGEST else None
    if ring is None:
        return None
    numbers = {frozenset((edge.first, edge.second)): i for i, edge in enumerate(ring)}
    at_corners: dict[str, tuple[str, ...]] = {}
    at_edges: dict[int, tuple[str, ...]] = {}
    for atom, variables in shared.items():
        if variables in numbers:
            number = numbers[variables]
            if ring[number].atom != atom:
                at_edges[number] = (*at_edges.get(number, ()), atom)
        elif len(variables) == 1 and variables <= {edge.first for edge in ring}:
            (corner,) = variables
            at_corners[corner] = (*at_corners.get(corner, ()), atom)
        else:
            return None
    return HungRing(ring, at_corners, at_edges)

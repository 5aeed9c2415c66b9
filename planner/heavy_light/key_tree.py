"""The keys of a hierarchical join as a tree, and the part trees by which of them are heavy.

A key has the columns of the key above and columns of its own. A table has the keys on a path from the top. Each key is
heavy or light; below a light key nothing is divided. So the ways to be heavy or light are: light, or heavy with any
ways of the keys right below. No two of them have a row of the join in common. A part tree has a node for each heavy
key, from the top down. What is below a light key is stored without it, as the join of its tables by the key above.

Kara, Nikolic, Olteanu and Zhang 2020, "Trade-offs in static and dynamic evaluation of hierarchical queries", section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from sqlfront.planner.model.heavy_light import Edge, PartKey, PartTree, Reading
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Atom, Definition

LARGEST = 64
"""Part trees of a view: a change is compiled for each of them."""

Status = dict[tuple[str, ...], str]
"""H or L for each key, by its columns; no letter for the keys below a light one."""


@dataclass(frozen=True)
class Key:
    """A key: its columns, the atoms whose last key it is, and the keys right below."""

    variables: tuple[str, ...]
    atoms: tuple[Atom, ...]
    below: tuple[Key, ...]

    @property
    def parts(self) -> int:
        """In how many ways the key and those below it are heavy or light."""
        return 1 + prod(key.parts for key in self.below)

    def statuses(self) -> Iterator[Status]:
        """These ways: light, then heavy with all ways of the keys below."""
        yield {self.variables: "L"}
        for ways in product(*(list(key.statuses()) for key in self.below)):
            yield {self.variables: "H"} | {key: letter for way in ways for key, letter in way.items()}

    def walk(self) -> Iterator[Key]:
        """The key and all keys below it, a key before those below it."""
        yield self
        for key in self.below:
            yield from key.walk()


@dataclass(frozen=True)
class KeyTree:
    """The keys of a join from the top one on; the output columns; the atoms with ends."""

    atoms: tuple[Atom, ...]
    free: tuple[str, ...]
    top: Key
    ended: frozenset[str]

    @classmethod
    def of(
        cls, definition: Definition, classes: Mapping[frozenset[str], Sequence[str]], ended: frozenset[str]
    ) -> KeyTree:
        """The tree of columns by the atoms that have them. `classes` are nested or apart, larger ones first."""

        def key(holders: frozenset[str], above: tuple[str, ...]) -> Key:
            variables = (*above, *classes[holders])
            inner = [one for one in classes if one < holders]
            right_below = [one for one in inner if not any(one < other for other in inner)]
            own = holders.difference(*right_below)
            atoms = tuple(atom for atom in definition.atoms if atom.name in own)
            return Key(variables, atoms, tuple(key(one, variables) for one in right_below))

        return cls(definition.atoms, tuple(dict.fromkeys(definition.free)), key(next(iter(classes)), ()), ended)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The atoms by their keys. One without ends has at most one row for its last key: no value is heavy there."""
        found: dict[str, tuple[tuple[str, ...], ...]] = {}
        for key in self.top.walk():
            for atom in self._tables(key):
                last = atom in key.atoms and atom.name not in self.ended
                found[atom.name] = (*found.get(atom.name, ()), *([] if last else [key.variables]))
        return tuple(Edge(atom.name, found[atom.name]) for atom in self.atoms)

    def statuses(self) -> Iterator[Status]:
        """All ways for the keys to be heavy or light, a light top key first."""
        return self.top.statuses()

    def part_tree(self, status: Status) -> PartTree:
        """The part tree of the rows whose keys have this status."""
        letters = {edge.atom: "".join(status.get(key, "*") for key in edge.groups) for edge in self.edges}
        parts = tuple((atom, PartKey.of(own)) for atom, own in letters.items())
        light = status[self.top.variables] == "L"
        root = Node((), (self._under((), self.top, status),), connex=True)
        return PartTree("".join(status.values()), parts, root, Reading.SHARED if light else Reading.ENUMERATED)

    def _under(self, above: tuple[str, ...], key: Key, status: Status) -> Node:
        """What joins at a key and below it: the join of its tables by the key above if the key is light."""
        if status[key.variables] == "L":
            leaves = tuple(self._leaf(atom, connex=False) for atom in self._tables(key))
            variables = tuple(dict.fromkeys(v for leaf in leaves for v in leaf.variables))
            shown = [v for v in self.free if v in variables and v not in above]
            return Node((*above, *shown), (Node(variables, leaves),), connex=True)
        below = (self._under(key.variables, one, status) for one in key.below)
        leaves = tuple(self._leaf(atom, connex=atom.name in self.ended) for atom in key.atoms)
        return Node(key.variables, (*below, *leaves), connex=True)

    def _tables(self, key: Key) -> list[Atom]:
        """The atoms that have a key."""
        names = {atom.name for one in key.walk() for atom in one.atoms}
        return [atom for atom in self.atoms if atom.name in names]

    @staticmethod
    def _leaf(atom: Atom, *, connex: bool) -> Node:
        return Node(tuple(column.name for column in atom.variables), atom=atom.name, connex=connex)

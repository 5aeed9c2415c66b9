"""The keys of a hierarchical join as a tree, and the part trees by which of them are heavy.

A key has the columns of the key above and columns of its own. A table has the keys on a path from the top. Each key is
heavy or light; below a light key nothing is divided, and a top key that is put out is not divided itself. So the ways
to be heavy or light are: light, or heavy with any ways of the keys right below. No two of them have a row of the join
in common. A part tree has a node for each heavy key, from the top down. What is below a light key is stored without it,
as the join of its tables by the key above. Keys below which nothing is put out are *filters*: they are summed out.

Kara, Nikolic, Olteanu and Zhang 2020, "Trade-offs in static and dynamic evaluation of hierarchical queries", section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from sqlfront.planner.model.exponents import Line, line
from sqlfront.planner.model.heavy_light import Edge, PartKey, PartTree, Reading
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Atom, Definition

LARGEST = 64
"""Part trees of a view: a change is compiled for each of them."""

Status = dict[tuple[str, ...], str]
"""H or L for each divided key, by its columns; no letter for the keys below a light one."""


@dataclass(frozen=True)
class Key:
    """A key: its columns, the atoms whose last key it is, the keys right below, those of them that are filters, and
    whether its values are divided."""

    variables: tuple[str, ...]
    atoms: tuple[Atom, ...]
    below: tuple[Key, ...]
    filters: tuple[Key, ...]
    divided: bool

    @property
    def parts(self) -> int:
        """In how many ways the key and those below it are heavy or light."""
        return self.divided + prod(key.parts for key in self.below)

    def statuses(self) -> Iterator[Status]:
        """These ways: light, then heavy with all ways of the keys below."""
        if self.divided:
            yield {self.variables: "L"}
        for ways in product(*(list(key.statuses()) for key in self.below)):
            own = {self.variables: "H"} if self.divided else {}
            yield own | {key: letter for way in ways for key, letter in way.items()}

    def walk(self) -> Iterator[Key]:
        """The key and all keys below it but filters, a key before those below it."""
        yield self
        for key in self.below:
            yield from key.walk()

    def tables(self) -> Iterator[Atom]:
        """The atoms that have the key."""
        yield from self.atoms
        for key in (*self.below, *self.filters):
            yield from key.tables()


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
            below = tuple(key(one, variables) for one in right_below if one & ended)
            filters = tuple(key(one, variables) for one in right_below if not one & ended)
            return Key(variables, atoms, below, filters, not set(classes[holders]) <= set(definition.free))

        return cls(definition.atoms, tuple(dict.fromkeys(definition.free)), key(next(iter(classes)), ()), ended)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The atoms by their divided keys. One without ends has at most one row for its last key: no value is heavy
        there."""
        found: dict[str, tuple[tuple[str, ...], ...]] = {atom.name: () for atom in self.atoms}
        for key in self.top.walk():
            for atom in key.tables() if key.divided else ():
                if atom not in key.atoms or atom.name in self.ended:
                    found[atom.name] = (*found[atom.name], key.variables)
        return tuple(Edge(atom, groups) for atom, groups in found.items())

    @property
    def update(self) -> Line:
        """The exponent of a change: of the tables below a light key that have ends, all but the changed one are listed;
        all of them if another table changes."""
        most = 0
        for key in self._divided():
            tables = list(key.tables())
            ends = sum(atom.name in self.ended for atom in tables)
            most = max(most, ends if ends < len(tables) else ends - 1)
        return line(0, most)

    @property
    def space(self) -> Line:
        """The exponent of the joins below light keys."""
        ends = (sum(atom.name in self.ended for atom in key.tables()) for key in self._divided())
        return line(1, max(ends) - 1)

    def _divided(self) -> Sequence[Key]:
        """The topmost keys that are divided."""
        return (self.top,) if self.top.divided else self.top.below

    def output(self) -> Node:
        """The tree of the output."""
        return Node((), (self._joined((), self.top),), connex=True)

    def part_trees(self) -> Iterator[PartTree]:
        """One for each way of the keys to be heavy or light, a light top key first."""
        for status in self.top.statuses():
            letters = {edge.atom: "".join(status.get(key, "*") for key in edge.groups) for edge in self.edges}
            parts = tuple((atom, PartKey.of(own)) for atom, own in letters.items())
            light = status.get(self.top.variables) == "L"
            root = Node((), (self._under((), self.top, status),), connex=True)
            yield PartTree("".join(status.values()), parts, root, Reading.SHARED if light else Reading.ENUMERATED)

    def _under(self, above: tuple[str, ...], key: Key, status: Status) -> Node:
        """What joins at a key and below it: the join of its tables by the key above if the key is light."""
        if status.get(key.variables) == "L":
            return self._joined(above, key)
        below = (self._under(key.variables, one, status) for one in key.below)
        leaves = (self._leaf(atom, connex=atom.name in self.ended) for atom in key.atoms)
        sums = (self._summed(key, one) for one in key.filters)
        return Node(key.variables, (*below, *leaves, *sums), connex=True)

    def _joined(self, above: tuple[str, ...], key: Key) -> Node:
        """The join of all tables of a key, by the key above and the output columns."""
        keys = list(key.walk())
        leaves = [self._leaf(atom, connex=False) for one in keys for atom in one.atoms]
        sums = [self._summed(one, below) for one in keys for below in one.filters]
        variables = tuple(dict.fromkeys(v for part in (*leaves, *sums) for v in part.variables))
        shown = [v for v in self.free if v in variables and v not in above]
        return Node((*above, *shown), (Node(variables, (*leaves, *sums)),), connex=True)

    def _summed(self, above: Key, key: Key) -> Node:
        """The sum of the joins below a filter, by the key above it."""
        leaves = (self._leaf(atom, connex=False) for atom in key.atoms)
        sums = (self._summed(key, one) for one in key.filters)
        return Node(above.variables, (Node(key.variables, (*leaves, *sums)),))

    @staticmethod
    def _leaf(atom: Atom, *, connex: bool) -> Node:
        return Node(tuple(column.name for column in atom.variables), atom=atom.name, connex=connex)

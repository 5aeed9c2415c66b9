"""Heavy and light values of a triangle R(a, b), S(b, c), T(c, a): which views are kept beside its sum, by which paths.

A change R(a, b) needs the sum over c of S(b, c) * T(c, a), and the shorter of the two lists is long only where both
values have many partners. Each table is therefore split by whether a tuple's first and its second value are *heavy*,
into HH, HL, LH and LL, and the lists of two heavy values are cut up: c that are heavy too are few, so they are
listed; for the rest the sum is kept, for all pairs of heavy values, as the product of S's HL and T's LH over light c.
A change of R then costs O(N^max(eps, 1-eps)) for N tuples and the threshold N^eps of heaviness (Kara, Nikolic, Ngo,
Olteanu and Zhang 2020, "Maintaining triangle queries under updates", the doubly partitioned nullary query).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from maintenance.paths import Delta, side_of
from maintenance.programs import Assembler, Join
from maintenance.relation import LeafStore
from maintenance.shapes import Shape, parts_of, shape_of
from maintenance.symmetry import reading
from maintenance.tree import Tree
from storage.table import Table

PARTS = ("HH", "HL", "LH")
"""The parts that are stored, by the status of a tuple's first and second value; nobody reads LL."""

# What a row of an edge's delta is tested for: whether its first and second value are heavy in its own table, the second
# in the table after it, the first in the one before.
_FIRST, _SECOND, _AFTER, _BEFORE = range(4)


@dataclass(frozen=True)
class Edge:
    """An atom of a triangle: it shares `first` with the atom before it, `second` with the one after it."""

    atom: str
    first: str
    second: str


@dataclass
class Column:
    """One of the two columns of a partitioned store: its heavy values, and those that may have to change."""

    expression: str
    heavy: Table
    pending: Table


@dataclass
class Partition:
    """The tuples of a store that have a heavy value, by the status of the values of both columns."""

    store: LeafStore
    columns: tuple[Column, Column]
    parts: dict[str, Table] = field(default_factory=dict)


@dataclass(frozen=True)
class Operand:
    """A table to join a delta with: its layout, the atoms whose factors it sums, the variables of its indexes."""

    table: Table
    shape: Shape
    atoms: frozenset[str]
    indexes: Sequence[tuple[str, ...]] = ()


def triangle_edges(tree: Tree) -> tuple[Edge, Edge, Edge] | None:
    """The atoms of a sum over a triangle in rotation; None for any other view, and for atoms with variables of their
    own, which are summed on their way to the join."""
    root = tree.root
    bag = root.children[0] if len(root.children) == 1 else None
    if bag is None or root.node.variables or tree.output is not None or not root.full or tree.stored_inner() != [root]:
        return None
    leaves = bag.children
    sets = [set(leaf.node.variables) for leaf in leaves]
    if len(leaves) != 3 or any(leaf.node.atom is None or len(own) != 2 for leaf, own in zip(leaves, sets, strict=True)):
        return None
    one, two, three = (sets[i] & sets[(i + 1) % 3] for i in range(3))
    if not len(one) == len(two) == len(three) == 1 or len(one | two | three) != 3:
        return None
    (a,), (b,), (c,) = three, one, two
    names = [leaf.node.atom or "" for leaf in leaves]
    return Edge(names[0], a, b), Edge(names[1], b, c), Edge(names[2], c, a)


def partitioned_edges(tree: Tree, *, symmetric: bool) -> tuple[Edge, Edge, Edge] | None:
    """The atoms of a sum over a triangle whose stores are partitioned: each reads one of its own, or all read one in
    a `symmetric` query (see symmetry.py). None for any other view."""
    stores = {reading(atom) for atom in tree.definition.atoms}
    return triangle_edges(tree) if len(stores) == (1 if symmetric else 3) else None


class Triangle:
    """The tables kept beside the sum over a triangle, and the paths that read and maintain them.

    `stores` gives each atom's; where one store serves all three atoms of a symmetric query (`copies` is 3) they share
    one partition and one product. `limbs` is the width of the products' values.
    """

    def __init__(
        self, tree: Tree, edges: tuple[Edge, Edge, Edge], stores: dict[str, LeafStore], owner: int, limbs: int
    ) -> None:
        self.tree, self.edges, self.owner, self.limbs = tree, edges, owner, limbs
        self.copies = 3 // len({id(store) for store in stores.values()})
        self.bounds = np.zeros(4, np.int64)
        self.partitions: list[Partition] = []
        self.products: list[Table] = []
        for i in range(3):
            if i > 0 and self.copies == 3:
                self.partitions.append(self.partitions[0])
                self.products.append(self.products[0])
            else:
                self.partitions.append(self._partition(i, stores[edges[i].atom]))
                shape = self.product_shape(i)
                self.products.append(Table(shape.keys, len(shape.parts), limbs, name="product"))

    @property
    def distinct(self) -> range:
        """The numbers of the edges whose partitions and products are different ones."""
        return range(3 // self.copies)

    def tables(self) -> list[Table]:
        """All tables whose rows a change may empty."""
        parts = [table for i in self.distinct for table in self.partitions[i].parts.values()]
        return parts + [self.products[i] for i in self.distinct]

    def all_tables(self) -> Iterator[Table]:
        """All tables, those of heavy and of pending values too."""
        yield from self.tables()
        for i in self.distinct:
            for column in self.partitions[i].columns:
                yield from (column.heavy, column.pending)

    def shape(self, i: int) -> Shape:
        """The layout of an edge's store and of its parts."""
        shape = self.tree.leaves[self.edges[i].atom].shape
        assert shape is not None
        return shape

    def product_shape(self, i: int) -> Shape:
        """The layout of the product of edge i and the next, over the outer variables of the two."""
        one, other = self.edges[i], self.edges[(i + 1) % 3]
        parts = parts_of(self.tree.definition.measures, {one.atom, other.atom})
        return shape_of((one.first, other.second), self.tree.widths, parts, self.limbs)

    def widen(self) -> None:
        """Give the values of the products one more limb."""
        self.limbs += 1
        for i in self.distinct:
            self.products[i].widen(self.limbs)

    def fit(self) -> None:
        """Give the values of the parts as many limbs as those of their stores have."""
        for i in self.distinct:
            for table in self.partitions[i].parts.values():
                if table.limbs < self.partitions[i].store.limbs:
                    table.widen(self.partitions[i].store.limbs)

    # Paths ---------------------------------------------------------------------------------------

    def add_status(self, assembler: Assembler, i: int) -> None:
        """Find the status of the values of a delta of edge i, which the paths that follow go by."""
        shape, edge = self.shape(i), self.edges[i]
        own, after, before = (self.partitions[(i + step) % 3].columns for step in range(3))
        columns = {_FIRST: own[0], _SECOND: own[1], _AFTER: after[0], _BEFORE: before[1]}
        values = {_FIRST: edge.first, _SECOND: edge.second, _AFTER: edge.second, _BEFORE: edge.first}
        assembler.path(self.owner)
        assembler.status([(columns[number].heavy, shape.places([values[number]])) for number in range(4)])
        assembler.path_end()

    def add_sum_paths(self, assembler: Assembler, i: int, limbs: int, times: int) -> None:
        """Add what a delta of edge i, counted `times` times, changes in the sum; all tables are as before it, and its
        status is known.

        At most O(N^max(eps, 1-eps)) a row: a list of a light value is short, heavy values are few.
        """
        here, after, before = i, (i + 1) % 3, (i + 2) % 3
        both = {_AFTER: True, _BEFORE: True}

        def add(keep: bool, listed: Operand, partner: Operand) -> None:
            delta = self._route(assembler, i, both, keep)
            lists = [(listed, self.edges[here].second), (partner, self.edges[here].first)]
            delta = self._extend(assembler, delta, lists, partner.shape.variables, limbs)
            self._add_up(assembler, delta, partner, limbs, times)

        add(False, self._whole(after), self._whole(before))
        with assembler.unless_light():
            add(True, self._whole(after), self._part(before, "HH"))
            add(True, self._part(after, "HH"), self._part(before, "LH"))
            delta = self._route(assembler, i, both)
            atoms = frozenset({self.edges[after].atom, self.edges[before].atom})
            product = Operand(self.products[after], self.product_shape(after), atoms)
            self._add_up(assembler, delta, product, limbs, times)

    def add_part_paths(self, assembler: Assembler, i: int, times: int = 1) -> None:
        """Add a delta of edge i, counted `times` times, to its parts, and what it changes to the products. Its
        status is known.

        Where all edges share one partition, a part takes the delta before the other is joined with it: a product of
        two changes is met once.
        """
        here, after, before = i, (i + 1) % 3, (i + 2) % 3
        first, second = self.edges[here].first, self.edges[here].second
        joins = {
            "HL": (self._part(after, "LH"), second, self.products[here], self.product_shape(here)),
            "LH": (self._part(before, "HL"), first, self.products[before], self.product_shape(before)),
        }
        for name, part in self.partitions[here].parts.items():
            delta = self._route(assembler, i, {_FIRST: name[0] == "H", _SECOND: name[1] == "H"})
            if times != 1:
                assembler.scale(delta.shape, times)
            assembler.upsert(part)
            if name in joins:
                partner, key, product, shape = joins[name]
                self._extend(assembler, delta, [(partner, key)], shape.variables, self.limbs)
                assembler.upsert(product)
            assembler.path_end()

    def add_notes(self, assembler: Assembler, i: int) -> None:
        """Note the values of a delta of edge i that may have become heavy or light; its store has taken the delta."""
        partition, shape = self.partitions[i], self.shape(i)
        table = partition.store.table
        assembler.path(self.owner)
        for column, variable in zip(partition.columns, (self.edges[i].first, self.edges[i].second), strict=True):
            index = partition.store.indexes.index((column.expression,))
            places = shape.places([variable])
            assembler.note(table, index, column.pending, int(self.bounds.ctypes.data), column.heavy, places)
        assembler.path_end()

    def add_settling(self, assembler: Assembler, i: int) -> None:
        """Ask for a rebalance if edge i's store, which has been swept, makes one necessary."""
        partition, bounds = self.partitions[i], int(self.bounds.ctypes.data)
        for column in partition.columns:
            index = partition.store.indexes.index((column.expression,))
            assembler.settle(partition.store.table, index, column.heavy, column.pending, bounds, self.owner)
        assembler.balance([self.partitions[i].store.table for i in self.distinct], self.copies, bounds)

    # Inside --------------------------------------------------------------------------------------

    def _partition(self, i: int, store: LeafStore) -> Partition:
        edge, shape = self.edges[i], self.shape(i)
        names = {c.name: c.expression for c in self.tree.definition.atom(edge.atom).variables}
        widths = dict(zip(shape.variables, shape.widths, strict=True))
        columns = [
            Column(names[v], Table(widths[v], 1, name="heavy values"), Table(widths[v], 1, name="pending values"))
            for v in (edge.first, edge.second)
        ]
        partition = Partition(store, (columns[0], columns[1]))
        for name in PARTS:
            indexes = [shape.places(index) for index in self._indexes(i, name)]
            partition.parts[name] = Table(shape.keys, len(shape.parts), store.limbs, indexes, name=name)
        return partition

    def _indexes(self, i: int, part: str) -> list[tuple[str, ...]]:
        """The variables by which a part of edge i is listed."""
        first, second = (self.edges[i].first,), (self.edges[i].second,)
        return [second] if part == "HL" else [first, second]

    def _whole(self, i: int) -> Operand:
        leaf = self.tree.leaves[self.edges[i].atom]
        assert leaf.table is not None
        return Operand(leaf.table, self.shape(i), leaf.atoms, leaf.indexes)

    def _part(self, i: int, name: str) -> Operand:
        table = self.partitions[i].parts[name]
        return Operand(table, self.shape(i), frozenset({self.edges[i].atom}), self._indexes(i, name))

    def _route(self, assembler: Assembler, i: int, wanted: Mapping[int, bool], keep: bool = True) -> Delta:
        """Begin a path with the rows of edge i's delta whose values have (without `keep`: have not) this status."""
        assembler.path(self.owner)
        assembler.route(wanted, keep)
        return Delta(self.shape(i), frozenset({self.edges[i].atom}))

    def _extend(
        self,
        assembler: Assembler,
        delta: Delta,
        lists: Sequence[tuple[Operand, str]],
        variables: Sequence[str],
        limbs: int,
    ) -> Delta:
        """Bind the third variable by the shortest of the lists, and multiply with the rows of the first of them."""
        operand = lists[0][0]
        atoms = delta.atoms | operand.atoms
        out = shape_of(variables, self.tree.widths, parts_of(self.tree.definition.measures, atoms), limbs)
        sides = []
        for listed, key in lists:
            fresh = [variable for variable in listed.shape.variables if variable != key]
            number = listed.indexes.index((key,))
            sides.append(side_of(listed.table, listed.shape, number, delta.shape, (key,), fresh))
        assembler.extend(sides, Join(delta.shape, delta.atoms, operand.shape, out))
        return Delta(out, atoms)

    def _add_up(self, assembler: Assembler, delta: Delta, operand: Operand, limbs: int, times: int) -> None:
        """End a path: multiply with the row of the last operand, and add to the sum."""
        root = self.tree.root
        assert root.table is not None
        out = shape_of((), self.tree.widths, parts_of(self.tree.definition.measures, root.atoms), limbs)
        places = delta.shape.places(operand.shape.variables)
        assembler.probe(operand.table, places, Join(delta.shape, delta.atoms, operand.shape, out))
        if times != 1:
            assembler.scale(out, times)
        assembler.upsert(root.table)
        assembler.path_end()

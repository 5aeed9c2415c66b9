"""Heavy and light values: the partitions of a view's stores, and how a change's rows find their parts.

A value of a column is heavy if many rows of the store have it. For each column that a strategy asks for
(planner/model/heavy_light.py) the heavy values are a table of their own; each part that a part tree reads is a table of
the store's rows whose values have that status, and takes every change of the store. All atoms that read a store share
its partition, so a part is named by the store's columns, whatever the atoms call them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.program.shapes import Shape
from sqlfront.maintenance.relation.base_relation import LeafStore
from sqlfront.planner.model.heavy_light import Edge, PartKey, Status
from sqlfront.planner.model.query import Definition
from sqlfront.storage.stores.table import Table


@dataclass
class Column:
    """A column of a store, or some together, by which it is partitioned: the heavy values, and those that may have to
    change. Rows go by `routing`: the heavy values themselves, or, with how often, those of all columns joined with it.
    """

    expressions: tuple[str, ...]
    heavy: Table
    pending: Table
    routing: Table


@dataclass
class Partition:
    """The partitioned columns of a store, and its parts. `layout` is the store's, by expressions instead of variables;
    `bounds` (see storage/kernels/layout.py) is the address of what degrees are compared with."""

    store: LeafStore
    bounds: int
    layout: Shape
    columns: list[Column] = field(default_factory=list)
    parts: dict[PartKey, Table] = field(default_factory=dict)
    indexes: dict[PartKey, dict[tuple[str, ...], bool]] = field(default_factory=dict)

    def tables(self) -> Iterator[Table]:
        """All tables."""
        yield from self.parts.values()
        for column in self.columns:
            yield from (column.heavy, column.pending)

    def need(self, part: PartKey, indexes: Iterable[tuple[str, ...]] = (), summed: Iterable[bool] = ()) -> None:
        """Ask for a part with groupings by expressions; before `make`."""
        wanted = self.indexes.setdefault(part, {})
        for index, sums in zip(indexes, summed, strict=True):
            wanted[index] = wanted.get(index, False) or sums

    def make(self) -> None:
        """Make the parts asked for, empty."""
        values = len(self.layout.parts)
        for part, wanted in self.indexes.items():
            places = [self.layout.places(index) for index in wanted]
            sums = [values if summed else 0 for summed in wanted.values()]
            self.parts[part] = Table(self.layout.keys, values, self.store.limbs, places, sums, name=str(part))

    def fit(self) -> None:
        """Give the values of the parts as many limbs as those of the store have."""
        for table in self.parts.values():
            if table.limbs < self.store.limbs:
                table.widen(self.store.limbs)

    def groups(self, column: Column) -> Table:
        """The groups of the store's rows by a column; their sizes are the degrees of its values."""
        return self.store.table.groups[self.store.indexes.index(column.expressions)]

    # Programs ------------------------------------------------------------------------------------

    def status(self, others: Sequence[tuple[Table, Sequence[int]]] = ()) -> list[tuple[Table, Sequence[int]]]:
        """What a row of the store's delta is tested for: each column's value, then `others`."""
        own = [(column.routing, self.layout.places(column.expressions)) for column in self.columns]
        return [*own, *others]

    def add_parts(self, assembler: Assembler, owner: int, times: int = 1, routing: Table | None = None) -> None:
        """Add a delta whose status is known, counted `times` times, to the parts; with `routing`, to those alone that
        tell heavy values from light ones by it."""
        changing = [part for part in self.parts if self.tells(part, routing)]

        def add(chosen: Iterable[PartKey]) -> None:
            for part in chosen:
                for single in part.singles():
                    assembler.path(owner)
                    self.route(assembler, single)
                    if times != 1:
                        assembler.scale(self.delta, times)
                    assembler.upsert(self.parts[part])
                    assembler.path_end()

        add(part for part in changing if not part.needs_heavy)
        with assembler.unless_light():
            add(part for part in changing if part.needs_heavy)

    def tells(self, part: PartKey, routing: Table | None) -> bool:
        """Whether a part's rows go by `routing`; any part if it is None."""
        return routing is None or any(
            column.routing is routing and part.tells(place) for place, column in enumerate(self.columns)
        )

    def route(self, assembler: Assembler, single: PartKey) -> None:
        """Keep the rows of a part of one cell on a path that has just begun."""
        [cell] = single.cells
        wanted = {place: status is Status.HEAVY for place, status in enumerate(cell) if status is not Status.ANY}
        if wanted:
            assembler.route(wanted)

    def add_notes(self, assembler: Assembler, owner: int) -> None:
        """Note the values of a delta that may have become heavy or light; the store has taken the delta."""
        assembler.path(owner)
        for column in self.columns:
            index = self.store.indexes.index(column.expressions)
            places = self.layout.places(column.expressions)
            assembler.note(self.store.table, index, column.pending, self.bounds, column.heavy, places)
        assembler.path_end()

    def add_settling(self, assembler: Assembler, owner: int) -> None:
        """Ask for a rebalance if a noted value of the store, which has been swept, makes one necessary."""
        for column in self.columns:
            index = self.store.indexes.index(column.expressions)
            assembler.settle(self.store.table, index, column.heavy, column.pending, self.bounds, owner)

    @property
    def delta(self) -> Shape:
        """The layout of the store's delta."""
        return Shape(self.layout.variables, self.layout.widths, self.layout.parts, self.store.limbs)


def partition_of(store: LeafStore, edge: Edge, definition: Definition, bounds: int) -> Partition:
    """An empty partition of a store that an atom reads; no column is partitioned yet."""
    atom = definition.atom(edge.atom)
    names = {column.name: column.expression for column in atom.variables}
    own = store.shape(atom)
    layout = Shape(tuple(names[variable] for variable in own.variables), own.widths, own.parts, own.limbs)
    return Partition(store, bounds, layout)


def partition_column(partition: Partition, expressions: tuple[str, ...]) -> Column:
    """The partitioned column of these expressions, added if it is not there."""
    for column in partition.columns:
        if column.expressions == expressions:
            return column
    width = len(partition.layout.places(expressions))
    heavy, pending = Table(width, 1, name="heavy values"), Table(width, 1, name="pending values")
    partition.columns.append(Column(expressions, heavy, pending, heavy))
    return partition.columns[-1]


def join_columns(columns: Sequence[Column], every: Sequence[Column]) -> None:
    """Let rows go by the heavy values of all of `columns`, and of those of `every` that these went with before."""
    together = [one for one in every if any(one.routing is column.routing for column in columns)]
    if len(together) > 1:
        joined = Table(columns[0].heavy.keys, 1, name="joined heavy values")
        for one in together:
            one.routing = joined


def part_of_store(partition: Partition, edge: Edge, part: PartKey, definition: Definition) -> PartKey:
    """The part, by the store's columns, that an atom's groups of variables name."""
    groups = group_expressions(edge, definition)
    cells = (dict(zip(groups, cell, strict=True)) for cell in part.cells)
    return PartKey(tuple(tuple(own.get(c.expressions, Status.ANY) for c in partition.columns) for own in cells))


def group_expressions(edge: Edge, definition: Definition) -> list[tuple[str, ...]]:
    """What the groups of an atom's variables are, each in the group's order: heavy values of atoms that are joined by a
    group are compared."""
    names = {column.name: column.expression for column in definition.atom(edge.atom).variables}
    return [tuple(names[variable] for variable in group) for group in edge.groups]

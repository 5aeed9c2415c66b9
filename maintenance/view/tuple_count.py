"""The number of distinct tuples of a view that several nodes of its tree hold together, so that nobody walks.

The tuples are the join of sets: the rows of the nodes where enumeration goes no deeper, and the keys for which what is
only summed is not empty. Their number is the root of a second tree, of the shape of the enumerated part, over tables
that hold these sets with count 1; a delta enters it as the rows that it makes appear or disappear (Berkholz, Keppeler
and Schweikardt 2017, section 6.3, count the same in each node of a q-tree).

A change costs a constant number of steps in a q-tree: there the number is kept. In other trees a change would meet as
many rows again as in the first tree and more, so the second tree is built when the number is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.metering import Meter
from sqlfront.maintenance.program.programs import Assembler, Join
from sqlfront.maintenance.program.shapes import Shape
from sqlfront.maintenance.relation.attachment import Attachment
from sqlfront.maintenance.tree.paths import Delta, begin_path, build_path, climb
from sqlfront.maintenance.tree.view_tree import Route, Tree, View
from sqlfront.maintenance.view.emission import Emission
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Atom
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table


class TupleCount(Attachment):
    """The tables beside a view's tree that count its tuples, and the paths that keep them.

    `limbs` is the width of the counts.
    """

    def __init__(self, tree: Tree, limbs: int) -> None:
        self._counted, self._limbs = tree, limbs
        self._entries = {f"entry {number}": entry for number, entry in enumerate(_entries(tree.root))}
        self._names = {id(entry): name for name, entry in self._entries.items()}
        self._aggregates: dict[View, Table] = {}
        columns = {column.name: column for atom in tree.definition.atoms for column in atom.variables}
        atoms = tuple(
            Atom(name, name, tuple(columns[variable] for variable in _variables(entry)))
            for name, entry in self._entries.items()
        )
        definition = replace(tree.definition, atoms=atoms, free=(), mode="bag", measures=())
        plan = replace(tree.plan, root=self._copy(tree.root), free=(), joins=(), distinct_sets=())
        self.tree = Tree(definition, plan, tree.codecs, counted=True)
        self._make()

    @property
    def total(self) -> int:
        """How many tuples there are. O(1)."""
        assert self.tree.root.table is not None
        return self.tree.root.table.count_of(())

    def release(self) -> None:
        """Give the memory back."""
        for table in self.tables():
            table.release()

    def tables(self) -> list[Table]:
        views = (*self.tree.leaves.values(), *self.tree.stored_inner())
        return [view.table for view in views if view.table is not None]

    def swept(self) -> list[Table]:
        return self.tables()

    def build(self, machine: Machine, owner: int) -> int:
        """Fill the tables from those of the view; returns the flags. O(rows) in a q-tree."""
        flags = 0
        for name, entry in self._entries.items():
            assembler, leaf = Assembler(), self.tree.leaves[name]
            table, shape = self._stored(entry)
            assert leaf.table is not None and leaf.shape is not None
            assembler.scan(table)
            assembler.path(owner)
            assembler.project(Join(shape, entry.atoms, None, leaf.shape))
            assembler.sign(leaf.shape)
            assembler.upsert(leaf.table)
            assembler.path_end()
            flags |= machine.run(assembler.program(), rows=table.used)
        for view in self.tree.stored_inner():
            assembler = Assembler()
            scanned = build_path(self.tree, view, assembler, owner, self._limbs)
            flags |= machine.run(assembler.program(), rows=scanned.used)
        return flags

    def add_path(
        self, leaf: View, assembler: Assembler, owner: int, position: int, times: int = 1, route: Route = ()
    ) -> None:
        """Add the path that counts what a leaf's delta makes appear or disappear."""
        emission = Emission(self._counted, leaf)
        entry = self.entry(emission)
        assert entry.table is not None and entry.shape is not None
        begin_path(self._counted, leaf, assembler, owner, position, route)
        assert leaf.shape is not None
        delta = emission.enter(Delta(leaf.shape, leaf.atoms), assembler, self._limbs)
        assembler.project(Join(delta.shape, delta.atoms, None, entry.shape))
        if times != 1:
            assembler.scale(entry.shape, times)
        delta = replace(delta, shape=entry.shape)
        if leaf not in self._aggregates:
            self._aggregates[leaf] = Table(entry.shape.keys, 1, self._limbs, name="delta of a leaf")
        assembler.aggregate(self._aggregates[leaf])
        emission.turn(assembler, delta, position)
        assembler.upsert(entry.table)
        climb(self.tree, entry, self.tree.root, assembler, self._limbs, write_all=True)
        assembler.path_end()

    def entry(self, emission: Emission) -> View:
        """The leaf of the second tree at which a leaf's delta enters it."""
        return self.tree.leaves[self._names[id(emission.top)]]

    def widen(self, limbs: int) -> None:
        self._limbs = limbs
        self._aggregates.clear()
        for table in self.tables():
            table.widen(limbs)
        self._shape()

    # Inside --------------------------------------------------------------------------------------

    def _copy(self, view: View) -> Node:
        """A node of the second tree: the entries are its leaves."""
        if id(view) in self._names:
            return Node(_variables(view), atom=self._names[id(view)])
        children = tuple(self._copy(child) for child in view.children)
        return Node(view.node.variables, children, comparisons=view.node.comparisons)

    def _stored(self, entry: View) -> tuple[Table, Shape]:
        if not entry.node.connex:
            return self._counted.message(entry)
        assert entry.table is not None and entry.shape is not None
        return entry.table, entry.shape

    def _shape(self) -> None:
        for leaf in self.tree.leaves.values():
            leaf.shape = self.tree.shape(leaf, self._limbs)
        for view in self.tree.stored_inner():
            view.shape = self.tree.shape(view, self._limbs)

    def _label(self, view: View) -> str:
        return "[" + ", ".join(map(self.tree.definition.label, view.node.variables)) + "]"

    def _make(self) -> None:
        self._shape()
        for view in (*self.tree.leaves.values(), *self.tree.stored_inner()):
            assert view.shape is not None
            indexes = [view.shape.places(index) for index in view.indexes]
            summed = [self.tree.summed(view, index) for index in view.indexes]
            order = self.tree.order_of(view)
            name = self._label(view)
            view.table = Table(
                view.shape.keys, 1, self._limbs, indexes, summed, name=name, order=order, ranges=view.ranges,
                summaries=self.tree.summaries_of(view), boxes=self.tree.boxes_of(view),
            )  # fmt: skip


def count_tuples(tree: Tree, limbs: int, meter: Meter) -> int:
    """The number of a tree's tuples where it is not kept: counted now, in a second tree that is thrown away.

    O(rows) where no step to a parent has to list, else as building the view.
    """
    machine = Machine()
    tuple_count = TupleCount(tree, limbs)
    while tuple_count.build(machine, 0) & at.OVERFLOW:
        limbs += 1
        tuple_count.release()
        tuple_count = TupleCount(tree, limbs)
    meter.steps += int(machine.scratch[at.STEPS])
    total = tuple_count.total
    tuple_count.release()
    return total


def _entries(view: View) -> Iterable[View]:
    """Where deltas enter the enumerated part of the tree: nodes that enumeration goes no deeper than, and children of
    others that are only summed."""
    for child in view.children:
        if child.node.connex and any(below.node.connex for below in child.children):
            yield from _entries(child)
        else:
            yield child


def _variables(entry: View) -> tuple[str, ...]:
    return entry.node.variables if entry.node.connex else entry.link

"""The part trees of a union of view trees at run time: each is a tree over parts of the stores, kept by the same paths.

A delta of an atom goes to every part tree that reads the atom; its rows are routed by the status of their values, and
climb its tree as they would climb any other. What part trees share, the output and its count, are tables of
the view's own tree, to which several part trees add.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.heavy_light.partition import (
    Column,
    Partition,
    group_expressions,
    join_columns,
    part_of_store,
    partition_column,
    partition_of,
)
from sqlfront.maintenance.heavy_light.stored_part_tree import Branch, StoredPartTree
from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.program.room import Goal, Room, fill
from sqlfront.maintenance.ranked.index import RankedIndex
from sqlfront.maintenance.relation.base_relation import LeafStore
from sqlfront.maintenance.tree.paths import build_path, climb
from sqlfront.maintenance.tree.view_tables import view_table
from sqlfront.maintenance.tree.view_tree import Tree, View
from sqlfront.planner.model.heavy_light import Edge, PartKey, PartTree, Reading, Union
from sqlfront.planner.model.plan import OrderPlan, RowsIn
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.atom_source import Source


def planned_part_trees(base: Tree, number: int, *, symmetric: bool) -> PartTrees | None:
    """The part trees of a tree's plan, without tables; None if it has none."""
    union = base.plan.union
    return None if union is None else PartTrees(base, union, number, symmetric=symmetric)


class PartTrees:
    """The part trees of a view, and the partitions of its stores. `base` is the view's own tree, with shared tables;
    `bounds` is what degrees are compared with. A `symmetric` view has one store, and one part tree of each kind."""

    def __init__(self, base: Tree, union: Union, number: int, *, symmetric: bool) -> None:
        self.base, self.union, self.number, self.symmetric = base, union, number, symmetric
        self.bounds = np.zeros(4, np.int64)
        self.partitions: list[Partition] = []
        self.stores: dict[str, LeafStore] = {}
        self.trees: list[StoredPartTree] = []
        for place, part_tree in enumerate(union.part_trees[: 1 if symmetric else None]):
            free = base.plan.free if part_tree.reading != Reading.LOOKED_UP else ()
            orders = tuple(order.of_part_tree(place) for order in base.plan.orders)
            plan = replace(base.plan, root=part_tree.root, free=free, union=None, orders=orders)
            asked = base.definition.mode == "bag" and part_tree.reading != Reading.LOOKED_UP
            tree = Tree(base.definition, plan, base.codecs, counted=asked, changed=part_tree.changed)
            self.trees.append(StoredPartTree(part_tree, tree, ranked=self._ranked(tree, orders)))
        serving = (kept for kept in self.trees if kept.planned.reading == Reading.LOOKED_UP)
        self._serving = {frozenset(kept.planned.parts): kept for kept in serving}
        for kept in self.trees:
            for view in kept.tree.stored_inner() if kept.planned.changed is not None else ():
                if view is not kept.tree.root:
                    served = self._served(kept, view).tree.root
                    served.indexes += [index for index in view.indexes if index not in served.indexes]
                    view.indexes = served.indexes
        for kept in self.overlapping():
            for branch in kept.branches():
                self._index(branch)

    def enumerated(self) -> list[StoredPartTree]:
        """The part trees whose rows are read from their trees."""
        return [kept for kept in self.trees if kept.planned.reading == Reading.ENUMERATED]

    def overlapping(self) -> list[StoredPartTree]:
        """The enumerated part trees, if some have an output tuple several times, with different values of the other
        variables."""
        if self.base.plan.rows_in == RowsIn.RANKED_TREE:
            return []
        enumerated, free = self.enumerated(), set(self.base.plan.free)
        return enumerated if any(kept.listed() != free for kept in enumerated) else []

    def whole(self, atom: str) -> Iterator[tuple[Tree, View]]:
        """The trees that read all rows of an atom, with its leaf there."""
        for kept in self.trees:
            if atom in kept.tree.leaves and kept.planned.part(atom).is_whole:
                yield kept.tree, kept.tree.leaves[atom]

    def tables(self) -> list[Table]:
        """All tables whose rows a change may empty; the view's own are not among them."""
        parts = [table for partition in self.partitions for table in partition.parts.values()]
        return parts + [view.table for kept in self.trees for view in self.own(kept) if view.table is not None]

    def shared_tables(self) -> list[Table]:
        """The view's own tables that part trees add to; none if covers keep them."""
        views = self.base.stored_inner() if self.union.keeps_rows else []
        return [view.table for view in views if view.table is not None]

    def all_tables(self) -> Iterator[Table]:
        """All tables, those of ranked trees and of heavy and pending values too."""
        yield from self.tables()
        for index in self.ranked():
            yield from index.tables()
        for column in self.columns():
            yield from (column.heavy, column.pending)
        yield from self.joined()

    def ranked(self) -> Iterator[RankedIndex]:
        """The ranked trees of all part trees."""
        for kept in self.trees:
            yield from kept.ranked.values()

    def columns(self) -> list[Column]:
        """All partitioned columns."""
        return [column for partition in self.partitions for column in partition.columns]

    def joined(self) -> list[Table]:
        """The tables of values that are heavy in one of several columns that are joined."""
        own = (column for column in self.columns() if column.routing is not column.heavy)
        return list({id(column.routing): column.routing for column in own}.values())

    def own(self, kept: StoredPartTree) -> list[View]:
        """The stored views of a part tree that it does not share."""
        return [view for view in kept.tree.stored_inner() if self._shared(kept, view) is None]

    def partition(self, atom: str) -> Partition:
        """The partition of the store that an atom reads."""
        return self.partition_of(self.stores[atom])

    def column(self, edge: Edge, group: tuple[str, ...]) -> Column:
        """The partitioned column of a group of an atom's variables."""
        expressions = tuple(self._expression(edge, variable) for variable in group)
        return next(one for one in self.partition(edge.atom).columns if one.expressions == expressions)

    def joining(self, parts: Mapping[str, PartKey]) -> StoredPartTree:
        """The part tree that joins these parts of two atoms, and nothing else."""
        if self.symmetric:
            return self.trees[0]
        return next(kept for kept in self.trees if dict(kept.planned.parts) == dict(parts))

    def filled(self, kept: StoredPartTree) -> list[View]:
        """The views that a part tree's own joins fill: of those added to a target, by the changes of one atom."""
        if kept.planned.changed is None:
            return [] if self._targeted(kept) else kept.tree.stored_inner()
        alike = (one.planned.changed for one in self.trees if one.planned.target == kept.planned.target)
        return [kept.tree.root] if next(filter(None, alike)) == kept.planned.changed else []

    def _targeted(self, kept: StoredPartTree) -> bool:
        """Whether other part trees are added to this one, which keeps nothing by itself."""
        return any(one.planned.target == kept.planned for one in self.trees)

    def _served(self, kept: StoredPartTree, view: View) -> StoredPartTree:
        """The part tree that a view inside an added one stands for."""
        return self._serving[frozenset(pair for pair in kept.planned.parts if pair[0] in view.atoms)]

    # Construction --------------------------------------------------------------------------------

    def _ranked(self, tree: Tree, orders: Iterable[OrderPlan]) -> dict[int, RankedIndex]:
        """The ranked trees of a part tree, without tables."""
        definition, found = self.base.definition, dict[int, RankedIndex]()
        for number, (order, plan) in enumerate(zip(definition.orders, orders, strict=True)):
            if self.base.plan.orders[number].part_trees:
                found[number] = RankedIndex(order, plan, tree, self.number, distinct=definition.mode == "set")
        return found

    def _index(self, branch: Branch) -> None:
        """Ask for the groupings by which the rows of a branch are enumerated."""
        for above in branch.common[-1:]:
            branch.upper.indexes += [index for index in [above.node.variables] if index not in branch.upper.indexes]
        for number, level in enumerate(branch.levels()):
            own = tuple(v for v in self.base.root.children[0].node.variables if v in level.node.variables)
            links = dict.fromkeys((level.link, own) if number == 0 and not branch.before else (level.link,))
            level.indexes += [index for index in links if index not in level.indexes]

    def open(self, sources: Mapping[str, Source]) -> None:
        """Make the partitions of the stores, empty. The view's own tree is bound to them."""
        self.stores = {atom: source.store for atom, source in sources.items()}
        for edge in self.union.edges:
            store = self.stores[edge.atom]
            if not any(one.store is store for one in self.partitions):
                bounds = int(self.bounds.ctypes.data)
                self.partitions.append(partition_of(store, edge, self.base.definition, bounds))
            for expressions in self.told(edge.atom):
                partition_column(self.partition(edge.atom), expressions)
        if self.union.joint:
            ends = [(group, self.column(edge, group)) for edge in self.union.edges for group in edge.groups]
            for variables in dict(ends):
                join_columns([column for group, column in ends if group == variables], self.columns())
        passing = [kept.planned for kept in self.trees if not kept.tree.stored_inner()]
        for edge in self.union.edges:
            for part in self._parts(edge, passing):
                if not part.is_whole:
                    self.partition(edge.atom).need(self.store_part(edge, part))
        for kept in self.trees:
            for edge in self._edges(kept):
                kept.store_parts[edge.atom] = self.store_part(edge, kept.planned.part(edge.atom))
                place = [e.atom for e in self._edges(kept)].index(edge.atom)
                kept.positions[edge.atom] = place if self.symmetric else sources[edge.atom].position
                if not kept.planned.part(edge.atom).is_whole and kept.planned not in passing:
                    leaf = kept.tree.leaves[edge.atom]
                    names = [tuple(self._expression(edge, v) for v in index) for index in leaf.indexes]
                    sums = [kept.tree.summed(leaf, index) > 0 for index in leaf.indexes]
                    self.partition(edge.atom).need(kept.store_parts[edge.atom], names, sums)
        for edge in self.union.edges:
            for part, variable in self.union.listings(edge):
                if not part.is_whole:
                    index = (self._expression(edge, variable),)
                    self.partition(edge.atom).need(self.store_part(edge, part), [index], [False])
        for partition in self.partitions:
            partition.make()

    def make_tables(self, limbs: int) -> None:
        """Make the part trees' own tables, empty, with values of `limbs` words; and point trees at what they share."""
        for kept in self.trees:
            for view in kept.tree.stored_inner():
                shared = self._shared(kept, view)
                view.shape = kept.tree.shape(view, limbs)
                view.table = shared.table if shared is not None else view_table(kept.tree, view, kept.planned.name)
            for index in kept.ranked.values():
                index.make_tables(self.stores)

    def widen(self, limbs: int) -> None:
        """Give the values of the part trees' own tables more limbs; those of shared ones have them."""
        for kept in self.trees:
            for view in self.own(kept):
                assert view.table is not None
                view.table.widen(limbs)
            for view in kept.tree.stored_inner():
                view.shape = kept.tree.shape(view, limbs)
            for index in kept.ranked.values():
                index.fit(self.stores)

    def bind_leaves(self) -> None:
        """Point the leaves of all trees at the parts, and at the stores' present tables."""
        for kept in self.trees:
            for edge in self._edges(kept):
                leaf, own = kept.tree.leaves[edge.atom], self.base.leaves[edge.atom]
                leaf.shape, leaf.table, leaf.indexes = own.shape, own.table, own.indexes
                if not kept.planned.part(edge.atom).is_whole:
                    leaf.table, leaf.indexes = self.part(edge, kept.planned.part(edge.atom))

    def part(self, edge: Edge, part: PartKey) -> tuple[Table | None, list[tuple[str, ...]]]:
        """The table of a part, and its groupings, in an atom's variables; None of one that joins nothing."""
        partition, own = self.partition(edge.atom), self.store_part(edge, part)
        if own not in partition.parts:
            return None, []
        columns = self.base.definition.atom(edge.atom).variables
        names = {column.expression: column.name for column in columns}
        indexes = [tuple(names[expression] for expression in index) for index in partition.indexes[own]]
        return partition.parts[own], indexes

    def told(self, atom: str) -> list[tuple[str, ...]]:
        """The columns of an atom that one of its parts tells the heavy values of."""
        edge = next(edge for edge in self.union.edges if edge.atom == atom)
        groups, parts = group_expressions(edge, self.base.definition), self._parts(edge)
        return [group for i, group in enumerate(groups) if any(part.tells(i) for part in parts)]

    def store_part(self, edge: Edge, part: PartKey) -> PartKey:
        """The part of the store that a part of an atom is."""
        return part_of_store(self.partition(edge.atom), edge, part, self.base.definition)

    def _parts(self, edge: Edge, passing: Collection[PartTree] = ()) -> list[PartKey]:
        """The parts of an atom that part trees and covers read, but for those `passing` changes on, which join
        nothing."""
        others = (one for one in self.union.part_trees if edge.atom in dict(one.parts) and one not in passing)
        return list(dict.fromkeys([*(one.part(edge.atom) for one in others), *self.union.covered]))

    def _edges(self, kept: StoredPartTree) -> list[Edge]:
        return [edge for edge in self.union.edges if edge.atom in kept.tree.leaves]

    def _expression(self, edge: Edge, variable: str) -> str:
        columns = self.base.definition.atom(edge.atom).variables
        return next(column.expression for column in columns if column.name == variable)

    def _shared(self, kept: StoredPartTree, view: View) -> View | None:
        """The view of the base tree to which a stored view of a part tree adds; None if it is the part tree's own."""
        if kept.planned.reading == Reading.LOOKED_UP:
            return None
        if kept.planned.changed is not None and view is not kept.tree.root:
            return self._served(kept, view).tree.root
        if kept.planned.target is not None:
            return next(one for one in self.trees if one.planned == kept.planned.target).tree.root
        if view is kept.tree.root:
            return self.base.root
        if kept.planned.reading == Reading.SHARED and view is kept.top() and view.node.connex:
            return self.base.root.children[0]
        return None

    # Programs ------------------------------------------------------------------------------------

    def add_paths(self, assembler: Assembler, store: LeafStore, position: int, limbs: int) -> None:
        """Add what a delta of a store changes in the part trees, for the atoms that read it at a position, and in
        its parts between the two positions. The status of its values is known."""
        last = max(self._positions(store), default=0)
        if position == 0:
            self._add_part_trees(assembler, store, 0, limbs)
        if position == last or self.symmetric:
            self.partition_of(store).add_parts(assembler, self.number)
            self._add_part_trees(assembler, store, 1, limbs)

    def add_moves(self, assembler: Assembler, store: LeafStore, routing: Table, times: int, limbs: int) -> None:
        """Take rows (times = -1) out of the parts and part trees that tell heavy values from light ones by
        `routing`, or put them in (1). Their status is known, and the store has them all the time."""
        self._add_part_trees(assembler, store, 0, limbs, times, routing)
        self.partition_of(store).add_parts(assembler, self.number, times, routing)
        self._add_part_trees(assembler, store, 1, limbs, times, routing)

    def add_ranking(self, assembler: Assembler) -> None:
        """Bring the ranked trees up to date with what has changed."""
        for index in self.ranked():
            index.add_ranking(assembler, set(index.leaves))

    def partition_of(self, store: LeafStore) -> Partition:
        return next(one for one in self.partitions if one.store is store)

    def _positions(self, store: LeafStore) -> Iterator[int]:
        for kept in self.trees:
            yield from (place for atom, place in kept.positions.items() if self.stores[atom] is store)

    def _add_part_trees(
        self, assembler: Assembler, store: LeafStore, position: int, limbs: int, times: int = 1,
        routing: Table | None = None,
    ) -> None:  # fmt: skip
        partition = self.partition_of(store)
        reading = [
            (kept, atom, part)
            for kept in self.trees
            for atom, part in kept.store_parts.items()
            if self.stores[atom] is store
            and kept.positions[atom] == position
            and kept.planned.changed in (None, atom)
            and not self._targeted(kept)
            and partition.tells(part, routing)
        ]

        def add(chosen: Iterable[tuple[StoredPartTree, str, PartKey]]) -> None:
            for kept, atom, part in chosen:
                leaf = kept.tree.leaves[atom]
                top = kept.tree.top(leaf)
                for single in part.singles() if top is not None else ():
                    assert top is not None
                    assembler.path(self.number)
                    partition.route(assembler, single)
                    if times != 1:
                        assembler.scale(partition.delta, times)
                    climb(kept.tree, leaf, top, assembler, limbs, write_all=True)
                    assembler.path_end()
                self._add_ranked(assembler, partition, kept, atom, times)

        add(one for one in reading if not one[2].needs_heavy)
        with assembler.unless_light():
            add(one for one in reading if one[2].needs_heavy)

    def _add_ranked(
        self, assembler: Assembler, partition: Partition, kept: StoredPartTree, atom: str, times: int = 1
    ) -> None:
        """Add the paths of an atom's delta, `times` times, into the leaves of a part tree's ranked trees."""
        delta = kept.tree.leaves[atom].shape
        for index in (index for index in kept.ranked.values() if atom in index.leaves):
            for single in kept.store_parts[atom].singles():
                assembler.path(self.number)
                partition.route(assembler, single)
                if times != 1:
                    assembler.scale(partition.delta, times)
                assert delta is not None
                index.add_delta(assembler, atom, delta)
                assembler.path_end()

    def add_settling(self, assembler: Assembler, store: LeafStore) -> None:
        """Ask for a rebalance if a store, which has been swept, makes one necessary."""
        self.partition_of(store).add_settling(assembler, self.number)
        tables = [read.table for read in self.stores.values()]
        assembler.balance(tables, 1, int(self.bounds.ctypes.data))

    # Filling -------------------------------------------------------------------------------------

    def fill(self, machine: Machine, limbs: int, room: Room | None = None) -> int:
        """Fill parts and part trees, which are empty, from the stores, whose heavy values are known; returns the flags.

        O(N^1.5): three-way joins take the shortest list, two-way joins have a light or a heavy side. Raises
        OperationalError as soon as it is foreseen that they do not find room.
        """
        flags = 0
        for partition in self.partitions:
            assembler = Assembler()
            assembler.scan(partition.store.table)
            self.add_status(assembler, partition)
            partition.add_parts(assembler, self.number)
            for kept in self.trees:
                for atom in (atom for atom in kept.store_parts if self.stores[atom] is partition.store):
                    self._add_ranked(assembler, partition, kept, atom)
            flags |= machine.run(assembler.program(), rows=partition.store.table.used)
        own = {table: table.bytes() for table in (self.tables() if room is not None else ())}
        taken = sum(own.values())
        for kept in self.trees:
            shared = [view for view in kept.tree.stored_inner() if self._shared(kept, view) is not None]
            for view in self.filled(kept):
                assembler = Assembler()
                avoid = shared if kept.planned.changed is None else self._aside(kept)
                scanned = build_path(kept.tree, view, assembler, self.number, limbs, avoid=avoid)
                goal = self._goal(kept, view)
                taken -= own.get(goal.table, 0)
                flags |= fill(machine, assembler, scanned.used, goal, taken, room)
                if goal.table in own:
                    own[goal.table] = goal.table.bytes()
                    taken += own[goal.table]
        sweep = Assembler()
        sweep.finish(at.SWEEP, [*self.tables(), *self.shared_tables()])
        self.add_ranking(sweep)
        machine.run_once(sweep.program())
        return flags

    def _aside(self, kept: StoredPartTree) -> list[View]:
        """The views of an added part tree from which it is not filled: all but the leaf whose changes are added."""
        return [view for view in kept.tree.root.walk() if view.node.atom != kept.planned.changed]

    def _goal(self, kept: StoredPartTree, view: View) -> Goal:
        """A table of a part tree, to be filled with what joins below it."""
        assert view.table is not None and view.shape is not None
        leaves = [leaf for leaf in kept.tree.leaves.values() if leaf.node.atom in view.atoms]
        sizes = [(frozenset(leaf.node.variables), leaf.table.live) for leaf in leaves if leaf.table is not None]
        labels = [self.base.definition.label(variable) for variable in view.shape.variables]
        return Goal(view.table, view.shape.variables, labels, sizes)

    def add_status(
        self, assembler: Assembler, partition: Partition, others: Iterable[tuple[Table, tuple[int, ...]]] = ()
    ) -> None:
        """Find the status of the values of a store's delta, which the paths that follow go by."""
        assembler.path(self.number)
        assembler.status(partition.status(list(others)))
        assembler.path_end()

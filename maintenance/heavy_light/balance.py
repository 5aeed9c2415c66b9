"""Keeping values heavy or light: thresholds, their upkeep after epochs, and the figures.

Of N tuples, a value with at least N^eps of them is heavy when a partition is made; until the next one a heavy value may
fall to half of that, a light one rise to one and a half times it. What crosses these bounds changes its status and its
tuples their parts (a minor rebalance); when the number of tuples has doubled, or fallen to a quarter, N is set anew and
everything is partitioned again (a major one). Both are paid for by the updates that made them necessary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from sqlfront.maintenance.heavy_light.part_trees import PartTrees
from sqlfront.maintenance.heavy_light.partition import Column, Partition
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.maintenance.program.machine import Machine, Program
from sqlfront.maintenance.program.programs import Assembler, Join
from sqlfront.maintenance.program.room import Room
from sqlfront.maintenance.program.shapes import COUNT, Part, Shape
from sqlfront.maintenance.relation.attachment import Attachment
from sqlfront.maintenance.relation.base_relation import LeafStore
from sqlfront.maintenance.tree.paths import side_of
from sqlfront.maintenance.tree.view_tree import View
from sqlfront.planner.model.heavy_light import PartKey, Status
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table


@dataclass(frozen=True)
class SkewFigures:
    """The partition as it is: `heavy` values by store and column, `parts` with their sizes by store, the sizes of the
    `views` that part trees keep; and how many values have changed their status, how often everything was partitioned
    again.
    """

    epsilon: float
    threshold: float
    base: int
    size: int
    heavy: tuple[tuple[int, ...], ...]
    parts: tuple[dict[str, int], ...]
    views: tuple[tuple[int, ...], ...]
    minors: int
    majors: int


class Balance(Attachment):
    """The driver of the partitions of a view's part trees: `base` is N, `limbs` the width of the part trees' values,
    which `widen` makes wider.

    At epsilon 0 all values are heavy, new ones at once; at 1 all are light. `stale` says that the tables have to be
    made anew from the stores, which `refresh` does.
    """

    def __init__(
        self, part_trees: PartTrees, epsilon: float, limbs: Callable[[], int], widen: Callable[[], None]
    ) -> None:
        self.part_trees, self.epsilon = part_trees, epsilon
        self._limbs, self._widen = limbs, widen
        self.base = self.minors = self.majors = 0
        self.stale = True
        self._moves: dict[int, _Move] = {}

    @property
    def threshold(self) -> float:
        """The degree from which on a value is heavy when it is partitioned."""
        return float(self.base**self.epsilon)

    @property
    def size(self) -> int:
        """The number of distinct tuples of the atoms. O(1)."""
        return sum(store.table.live for store in self.part_trees.stores.values())

    def figures(self) -> SkewFigures:
        """The partition's figures. O(1)."""
        return SkewFigures(
            self.epsilon,
            self.threshold,
            self.base,
            self.size,
            tuple(tuple(column.heavy.live for column in one.columns) for one in self.part_trees.partitions),
            tuple(map(_sizes, self.part_trees.partitions)),
            tuple(
                tuple(view.table.live for view in self.part_trees.own(kept) if view.table is not None)
                for kept in self.part_trees.trees
            ),
            self.minors,
            self.majors,
        )

    def swept(self) -> list[Table]:
        return self.part_trees.tables()

    def kept(self) -> list[Table]:
        return list(self.part_trees.all_tables())

    def add_row_paths(self, assembler: Assembler, store: LeafStore, position: int, atoms: Mapping[str, Shape]) -> None:
        """Note the values that may have to become heavy or light."""
        if position == 1:
            self.part_trees.partition_of(store).add_notes(assembler, self.part_trees.number)

    def add_requests(self, assembler: Assembler, stores: list[LeafStore]) -> None:
        """Ask for a rebalance if one is necessary."""
        for store in stores:
            self.part_trees.add_settling(assembler, store)

    def widen(self, limbs: int) -> None:
        self.part_trees.widen(limbs)

    def rescale(self, names: Set[tuple[str, str]], bits: int) -> None:
        self.stale = True

    def refresh(self, machine: Machine, stores: Mapping[str, LeafStore], room: Room | None) -> None:
        """Fit the tables to the stores, whose layout may have changed. O(N^1.5) if stale, else O(rows)."""
        self._moves.clear()
        for partition in self.part_trees.partitions:
            partition.fit()
        self.part_trees.bind_leaves()
        if self.stale:
            self.base = self.base or 2 * self.size + 1
            self._rebuild(machine, room)
            self.stale = False

    def rebalance(self, machine: Machine) -> bool:
        """Bring everything within bounds, between epochs. True if values have become wider: programs have to be
        assembled again.

        Amortised O(N^max(eps, 1-eps)) per changed row; Ctrl-C waits for its end.
        """
        limbs = self._limbs()
        with Uninterrupted():
            base = fitting_base(self.base, self.size)
            if base != self.base:
                self.base = base
                self.majors += 1
                self._rebuild(machine)
            elif self._move_all(machine) & at.OVERFLOW:
                self._widen()
                self._rebuild(machine)
        return self._limbs() != limbs

    # Partitioning anew ---------------------------------------------------------------------------

    def _rebuild(self, machine: Machine, room: Room | None = None) -> None:
        """Partition strictly by the present threshold, with wider values as they prove needed."""
        theta = self.threshold
        upper = 1 if self.epsilon == 0 else math.ceil(1.5 * theta)
        self.part_trees.bounds[:] = math.ceil(theta / 2), upper, self.base // 4, self.base
        while True:
            for table in self.part_trees.all_tables():
                table.reset()
            for table in self.part_trees.shared_tables():
                table.reset()
            for partition in self.part_trees.partitions:
                for column in partition.columns:
                    keys, sizes = partition.groups(column).members()
                    self._mark(machine, column, keys[sizes >= theta], 1)
            if self.part_trees.fill(machine, self._limbs(), room) & at.OVERFLOW == 0:
                return
            self._widen()
            self._moves.clear()

    # Moving values -------------------------------------------------------------------------------

    def _move_all(self, machine: Machine) -> int:
        """Change the status of all pending values that are out of bounds; returns the flags."""
        flags = 0
        for partition in self.part_trees.partitions:
            for column in partition.columns:
                keys = np.array(sorted(column.pending.rows()), np.int64).reshape(-1, column.pending.keys)
                column.pending.reset()
                heavy = self._crossing(partition, column, keys)
                for status in (0, 1):
                    moving = keys[heavy == status]
                    if len(moving):
                        flags |= self._change(machine, column, moving, promote=status == 1)
        return flags

    def _crossing(self, partition: Partition, column: Column, keys: np.ndarray) -> np.ndarray:
        """By value: 1 if it has to become heavy, 0 if it has to become light, else -1."""
        lower, upper = (int(bound) for bound in self.part_trees.bounds[[at.BOUND_LOWER, at.BOUND_UPPER]])
        group = partition.groups(column)
        status = np.full(len(keys), -1)
        for number, key in enumerate(keys):
            size = group.size_of(key)
            if column.heavy.find(key) is not None:
                status[number] = 0 if size < lower else -1
            elif size >= upper:
                status[number] = 1
        return status

    def _change(self, machine: Machine, column: Column, keys: np.ndarray, *, promote: bool) -> int:
        """Make values heavy in a column, or light, and move their tuples; returns the flags. Those that are heavy in
        another one that is joined with it stay where they are."""
        weight = 1 if promote else -1
        known = column.routing.rows() if column.routing is not column.heavy else {}
        stays = np.array([known.get(tuple(map(int, key)), (0,))[0] > (0 if promote else 1) for key in keys], bool)
        self._mark(machine, column, keys[stays], weight)
        self.minors += len(keys)
        return self._move(machine, column, keys[~stays], weight) if not stays.all() else 0

    def _move(self, machine: Machine, column: Column, keys: np.ndarray, weight: int) -> int:
        """Take the tuples of values out of their parts, change the values' status, and put the tuples in again."""
        place = id(column.routing)
        if place not in self._moves:
            self._moves[place] = _Move(self.part_trees, column.routing, self._limbs())
        move = self._moves[place]
        flags = move.take(machine, np.ascontiguousarray(np.column_stack([keys, np.ones(len(keys), np.int64)])))
        self._mark(machine, column, keys, weight)
        flags |= move.put(machine)
        if machine.run_once(move.sweep) & at.SHRINK:
            for table in (
                *self.part_trees.tables(),
                *(table for one in self.part_trees.ranked() for table in one.tables()),
            ):
                table.shrink()
        return flags

    def _mark(self, machine: Machine, column: Column, keys: np.ndarray, weight: int) -> None:
        """Make values heavy (1) or light (-1)."""
        if not len(keys):
            return
        data = np.ascontiguousarray(np.column_stack([keys, np.full(len(keys), weight, np.int64)]))
        tables = [column.heavy] if column.routing is column.heavy else [column.heavy, column.routing]
        assembler, sweep = Assembler(), Assembler()
        assembler.lift(data.shape[1], 1, -1, [], range(keys.shape[1]), [])
        for table in tables:
            assembler.path(self.part_trees.number)
            assembler.upsert(table)
            assembler.path_end()
        machine.run(assembler.program(), data, len(data))
        sweep.finish(at.SWEEP, tables, self.part_trees.number)
        machine.run_once(sweep.program())

    # Invariants ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of partitions and of all that part trees keep. O(size * degree), between epochs
        only."""
        low, high = self.part_trees.bounds[at.BOUND_SMALLEST], self.part_trees.bounds[at.BOUND_LIMIT]
        assert (low, high) == (self.base // 4, self.base) and low <= self.size < high, "the size is out of bounds"
        for partition in self.part_trees.partitions:
            self._check_partition(partition)
        self._check_views()
        for joined in self.part_trees.joined():
            counts = Counter(
                key for column in self.part_trees.columns() if column.routing is joined for key in column.heavy.rows()
            )
            assert {key: count for key, (count,) in joined.rows().items()} == counts, "joined heavy values are wrong"
        for table in self.part_trees.all_tables():
            table._check()

    def _check_partition(self, partition: Partition) -> None:
        theta = self.threshold
        status = []
        for column in partition.columns:
            assert column.pending.live == 0, "values wait for a rebalance"
            heavy, places = set(column.heavy.rows()), partition.layout.places(column.expressions)
            keys, sizes = partition.groups(column).members()
            degrees = {tuple(map(int, key)): int(size) for key, size in zip(keys, sizes, strict=True)}
            assert heavy <= degrees.keys(), "a heavy value is not there"
            assert all(degrees[key] >= theta / 2 for key in heavy), "a heavy value has too few tuples"
            light = degrees.keys() - heavy
            assert all(degrees[key] < 1.5 * theta for key in light), "a light value has too many tuples"
            status.append((set(column.routing.rows()), places))
        expected: dict[PartKey, dict[tuple[int, ...], tuple[int, ...]]] = {part: {} for part in partition.parts}
        for key, values in partition.store.table.rows().items():
            cell = tuple(
                Status.HEAVY if tuple(key[p] for p in places) in heavy else Status.LIGHT for heavy, places in status
            )
            for part, rows in expected.items():
                if part.has(cell):
                    rows[key] = values
        for part, table in partition.parts.items():
            assert table.rows() == expected[part], f"part {part} is wrong"

    def _check_views(self) -> None:
        """Each table that part trees keep, or share, is the sum over the joins of the parts that its part trees
        read."""
        expected: dict[int, tuple[Table, dict[tuple[int, ...], tuple[int, ...]]]] = {}
        rows_of = cache(Table.rows)  # Part trees share parts.
        for kept in self.part_trees.trees:
            for view in self.part_trees.filled(kept):
                assert view.table is not None and view.shape is not None
                found = expected.setdefault(id(view.table), (view.table, {}))[1]
                for key, values in _recomputed(view, rows_of).items():
                    sums = [a + b for a, b in zip(found.get(key, (0,) * len(values)), values, strict=True)]
                    found[key] = tuple(sums)
        for table, rows in expected.values():
            assert table.rows() == rows, f"{table.name} is wrong"


def fitting_base(base: int, size: int) -> int:
    """N for this many tuples: the present one while floor(N/4) <= size < N, else doubled or halved until it fits."""
    while size >= base:
        base *= 2
    while size < base // 4:
        base = base // 2 - 1
    return base


def _recomputed(
    view: View, rows_of: Callable[[Table], dict[tuple[int, ...], tuple[int, ...]]]
) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The rows that a stored view of a tree should have: its leaves joined one after the other. For tests."""
    assert view.shape is not None
    joined: list[tuple[dict[str, tuple[int, ...]], dict[Part, int]]] = [({}, {COUNT: 1})]
    for leaf in (below for below in view.walk() if below.node.atom is not None):
        assert leaf.table is not None and leaf.shape is not None
        places = {variable: leaf.shape.places([variable]) for variable in leaf.shape.variables}
        shared = [variable for variable in places if joined and variable in joined[0][0]]
        matches: dict[tuple[tuple[int, ...], ...], list[tuple[dict[str, tuple[int, ...]], dict[Part, int]]]] = {}
        for key, values in rows_of(leaf.table).items():
            codes = {variable: tuple(key[p] for p in own) for variable, own in places.items()}
            matched = matches.setdefault(tuple(codes[variable] for variable in shared), [])
            matched.append((codes, dict(zip(leaf.shape.parts, values, strict=True))))
        joined = [
            (bound | codes, {one | other: a * b for one, a in sums.items() for other, b in values.items()})
            for bound, sums in joined
            for codes, values in matches.get(tuple(bound[variable] for variable in shared), ())
        ]
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for bound, sums in joined:
        key = tuple(word for variable in view.shape.variables for word in bound[variable])
        before = found.get(key, (0,) * len(view.shape.parts))
        found[key] = tuple(a + sums[part] for a, part in zip(before, view.shape.parts, strict=True))
    return found


def _sizes(partition: Partition) -> dict[str, int]:
    """The sizes of a partition's parts; of the one that nobody reads, if there is just one, too."""
    sizes = {part: table.live for part, table in partition.parts.items()}
    every = [PartKey((cell,)) for cell in product((Status.HEAVY, Status.LIGHT), repeat=len(partition.columns))]
    missing = [single for single in every if single not in sizes]
    if len(missing) == 1 and len(sizes) == len(every) - 1:
        sizes[missing[0]] = partition.store.table.live - sum(sizes.values())
    return dict(sorted((str(part), size) for part, size in sizes.items()))


class _Move:
    """The programs that move the tuples of values from part to part, in all stores that tell them by one table."""

    def __init__(self, part_trees: PartTrees, routing: Table, limbs: int) -> None:
        partitions = [one for one in part_trees.partitions if any(column.routing is routing for column in one.columns)]
        self._stores = [_Tuples(part_trees, partition, routing, limbs) for partition in partitions]
        sweep = Assembler()
        sweep.finish(at.SWEEP, [*part_trees.tables(), *part_trees.shared_tables()], part_trees.number)
        part_trees.add_ranking(sweep)
        self.sweep = sweep.program()

    def take(self, machine: Machine, values: np.ndarray) -> int:
        """Take the tuples of values, each with a count of 1, out of their parts; returns the flags."""
        flags = 0
        for one in self._stores:
            flags |= one.collect(machine, values) | machine.run(one.take, rows=one.tuples.used)
        return flags

    def put(self, machine: Machine) -> int:
        """Put them in again, by their present status; returns the flags."""
        flags = 0
        for one in self._stores:
            flags |= machine.run(one.put, rows=one.tuples.used)
            one.tuples.reset()
        return flags


class _Tuples:
    """The tuples of one store that are moved, each once, whichever of its columns has a value that changes."""

    def __init__(self, part_trees: PartTrees, partition: Partition, routing: Table, limbs: int) -> None:
        columns = [column for column in partition.columns if column.routing is routing]
        shape, keys = partition.delta, columns[0].heavy.keys
        self.tuples = Table(shape.keys, len(shape.parts), shape.limbs, name="moving")
        self._found = Table(shape.keys, len(shape.parts), shape.limbs, name="found")
        self._values = Table(keys, 1, name="moving values")
        self._collecting: list[tuple[Program, Program]] = []
        for i, column in enumerate(columns):
            find, add = Assembler(), Assembler()
            find.lift(keys + 1, 1, -1, [], range(keys), [])
            self._add_search(find, partition, column, part_trees.number)
            if i == 0:
                find.path(part_trees.number)
                find.upsert(self._values)
                find.path_end()
            add.scan(self._found)
            add.path(part_trees.number)
            add.status([(self._values, shape.places(one.expressions)) for one in columns[:i]])
            add.route(dict.fromkeys(range(i), False))
            add.upsert(self.tuples)
            add.path_end()
            self._collecting.append((find.program(), add.program()))
        take, put = Assembler(), Assembler()
        for program, times in ((take, -1), (put, 1)):
            program.scan(self.tuples)
            part_trees.add_status(program, partition)
            part_trees.add_moves(program, partition.store, routing, times, limbs)
        self.take, self.put = take.program(), put.program()

    def collect(self, machine: Machine, values: np.ndarray) -> int:
        """Find the tuples with any of these values; returns the flags."""
        flags = 0
        for find, add in self._collecting:
            flags |= machine.run(find, values, len(values))
            flags |= machine.run(add, rows=self._found.used)
            self._found.reset()
        self._values.reset()
        return flags

    def _add_search(self, assembler: Assembler, partition: Partition, column: Column, number: int) -> None:
        """Find the tuples whose `column` has one of the delta's values."""
        shape, key, table = partition.delta, column.expressions, partition.store.table
        others = [name for name in shape.variables if name not in key]
        values = Shape(key, tuple(len(shape.places([name])) for name in key), (COUNT,), 1)
        side = side_of(table, shape, partition.store.indexes.index(key), values, key, others)
        assembler.path(number)
        assembler.extend([side], Join(values, frozenset(), shape, shape))
        assembler.upsert(self._found)
        assembler.path_end()

"""Keeping values heavy or light: thresholds, their upkeep after epochs, and the figures.

Of N tuples, a value with at least N^eps of them is heavy when a partition is made; until the next one a heavy value may
fall to half of that, a light one rise to one and a half times it. What crosses these bounds changes its status and its
tuples their parts (a minor rebalance); when the number of tuples has doubled, or fallen to a quarter, N is set anew and
everything is partitioned again (a major one). Both are paid for by the updates that made them necessary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from maintenance.critical import Uninterrupted
from maintenance.machine import Machine, Program
from maintenance.paths import side_of
from maintenance.pieces import Pieces
from maintenance.programs import Assembler, Join
from maintenance.room import Room
from maintenance.shapes import COUNT, Part, Shape
from maintenance.skew import Column, Partition, cells, part_name
from maintenance.tree import View
from storage import layout as at
from storage.table import Table


@dataclass(frozen=True)
class SkewFigures:
    """The partition as it is: `heavy` values by store and column, `parts` with their sizes by store, the sizes of the
    `views` that pieces keep; and how many values have changed their status, how often everything was partitioned again.
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


class Balance:
    """The driver of the partitions of a view's pieces: `base` is N, `limbs` the width of the pieces' values, which
    `widen` makes wider.

    At epsilon 0 all values are heavy, new ones at once; at 1 all are light. `stale` says that the tables have to be
    made anew from the stores, which `refresh` does.
    """

    def __init__(self, pieces: Pieces, epsilon: float, limbs: Callable[[], int], widen: Callable[[], None]) -> None:
        self.pieces, self.epsilon = pieces, epsilon
        self._limbs, self._widen = limbs, widen
        self.base = self.minors = self.majors = 0
        self.stale = True
        self._moves: dict[tuple[int, int], _Move] = {}

    @property
    def threshold(self) -> float:
        """The degree from which on a value is heavy when it is partitioned."""
        return float(self.base**self.epsilon)

    @property
    def size(self) -> int:
        """The number of distinct tuples of the atoms. O(1)."""
        return sum(store.table.live for store in self.pieces.stores.values())

    def figures(self) -> SkewFigures:
        """The partition's figures. O(1)."""
        return SkewFigures(
            self.epsilon,
            self.threshold,
            self.base,
            self.size,
            tuple(tuple(column.heavy.live for column in one.columns) for one in self.pieces.partitions),
            tuple(map(_sizes, self.pieces.partitions)),
            tuple(
                tuple(view.table.live for view in self.pieces.own(kept) if view.table is not None)
                for kept in self.pieces.trees
            ),
            self.minors,
            self.majors,
        )

    def refresh(self, machine: Machine, room: Room | None = None) -> None:
        """Fit the tables to the stores, whose layout may have changed. O(N^1.5) if stale, else O(rows)."""
        self._moves.clear()
        for partition in self.pieces.partitions:
            partition.fit()
        self.pieces.bind_leaves()
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
        self.pieces.bounds[:] = math.ceil(theta / 2), upper, self.base // 4, self.base
        while True:
            for table in self.pieces.all_tables():
                table.reset()
            for table in self.pieces.shared_tables():
                table.reset()
            for partition in self.pieces.partitions:
                for column in partition.columns:
                    keys, sizes = partition.groups(column).members()
                    self._mark(machine, column, keys[sizes >= theta], 1)
            if self.pieces.fill(machine, self._limbs(), room) & at.OVERFLOW == 0:
                return
            self._widen()
            self._moves.clear()

    # Moving values -------------------------------------------------------------------------------

    def _move_all(self, machine: Machine) -> int:
        """Change the status of all pending values that are out of bounds; returns the flags."""
        flags = 0
        for i, partition in enumerate(self.pieces.partitions):
            for place, column in enumerate(partition.columns):
                keys = np.array(sorted(column.pending.rows()), np.int64).reshape(-1, column.pending.keys)
                column.pending.reset()
                heavy = self._crossing(partition, column, keys)
                for status in (0, 1):
                    moving = keys[heavy == status]
                    if len(moving):
                        flags |= self._move(machine, i, place, moving, promote=status == 1)
        return flags

    def _crossing(self, partition: Partition, column: Column, keys: np.ndarray) -> np.ndarray:
        """By value: 1 if it has to become heavy, 0 if it has to become light, else -1."""
        lower, upper = (int(bound) for bound in self.pieces.bounds[[at.BOUND_LOWER, at.BOUND_UPPER]])
        group = partition.groups(column)
        status = np.full(len(keys), -1)
        for number, key in enumerate(keys):
            size = group.size_of(key)
            if column.heavy.find(key) is not None:
                status[number] = 0 if size < lower else -1
            elif size >= upper:
                status[number] = 1
        return status

    def _move(self, machine: Machine, i: int, place: int, keys: np.ndarray, *, promote: bool) -> int:
        """Take the tuples of values out of their parts, change the values' status, and put the tuples in again."""
        if (i, place) not in self._moves:
            self._moves[i, place] = _Move(self.pieces, i, place, self._limbs())
        move = self._moves[i, place]
        column = self.pieces.partitions[i].columns[place]
        data = np.ascontiguousarray(np.column_stack([keys, np.ones(len(keys), np.int64)]))
        flags = machine.run(move.collect, data, len(data))
        rows = int(move.tuples.header[at.USED])
        flags |= machine.run(move.take, rows=rows)
        self._mark(machine, column, keys, 1 if promote else -1)
        flags |= machine.run(move.put, rows=rows)
        move.tuples.reset()
        if machine.run_once(move.sweep) & at.SHRINK:
            for table in self.pieces.tables():
                table.shrink()
        self.minors += len(keys)
        return flags

    def _mark(self, machine: Machine, column: Column, keys: np.ndarray, weight: int) -> None:
        """Make values heavy (1) or light (-1)."""
        if not len(keys):
            return
        data = np.ascontiguousarray(np.column_stack([keys, np.full(len(keys), weight, np.int64)]))
        assembler, sweep = Assembler(), Assembler()
        assembler.lift(data.shape[1], 1, -1, [], range(keys.shape[1]), [])
        assembler.path(self.pieces.number)
        assembler.upsert(column.heavy)
        assembler.path_end()
        machine.run(assembler.program(), data, len(data))
        sweep.finish(at.SWEEP, [column.heavy], self.pieces.number)
        machine.run_once(sweep.program())

    # Invariants ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of partitions and of all that pieces keep. O(size * degree), between epochs only."""
        low, high = self.pieces.bounds[at.BOUND_SMALLEST], self.pieces.bounds[at.BOUND_LIMIT]
        assert (low, high) == (self.base // 4, self.base) and low <= self.size < high, "the size is out of bounds"
        for partition in self.pieces.partitions:
            self._check_partition(partition)
        self._check_views()
        for table in self.pieces.all_tables():
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
            status.append((heavy, places))
        expected: dict[tuple[str, ...], dict[tuple[int, ...], tuple[int, ...]]] = {name: {} for name in partition.parts}
        for key, values in partition.store.table.rows().items():
            own = ["H" if tuple(key[p] for p in places) in heavy else "L" for heavy, places in status]
            for letters, rows in expected.items():
                if any(all(map(_fits, cell, own)) for cell in cells(letters)):
                    rows[key] = values
        for letters, part in partition.parts.items():
            assert part.rows() == expected[letters], f"part {letters} is wrong"

    def _check_views(self) -> None:
        """Each table that pieces keep, or share, is the sum over the joins of the parts that its pieces read."""
        expected: dict[int, tuple[Table, dict[tuple[int, ...], tuple[int, ...]]]] = {}
        for kept in self.pieces.trees:
            for view in self.pieces.filled(kept):
                assert view.table is not None and view.shape is not None
                found = expected.setdefault(id(view.table), (view.table, {}))[1]
                for key, values in recomputed(view).items():
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


def recomputed(view: View) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The rows that a stored view of a tree should have: its leaves joined one after the other. For tests."""
    assert view.shape is not None
    joined: list[tuple[dict[str, tuple[int, ...]], dict[Part, int]]] = [({}, {COUNT: 1})]
    for leaf in (below for below in view.walk() if below.node.atom is not None):
        assert leaf.table is not None and leaf.shape is not None
        places = {variable: leaf.shape.places([variable]) for variable in leaf.shape.variables}
        shared = [variable for variable in places if joined and variable in joined[0][0]]
        matches: dict[tuple[tuple[int, ...], ...], list[tuple[dict[str, tuple[int, ...]], dict[Part, int]]]] = {}
        for key, values in leaf.table.rows().items():
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


def _fits(letter: str, status: str) -> bool:
    """Whether a value of this status is in a part with this letter."""
    return letter in ("*", status)


def _sizes(partition: Partition) -> dict[str, int]:
    """The sizes of a partition's parts; of the one that nobody reads, if there is just one, too."""
    sizes = {part_name(letters): table.live for letters, table in partition.parts.items()}
    every = ["".join(letters) for letters in product("HL", repeat=len(partition.columns))]
    missing = [cell for cell in every if cell not in sizes]
    if len(missing) == 1 and len(sizes) == len(every) - 1:
        sizes[missing[0]] = partition.store.table.live - sum(sizes.values())
    return dict(sorted(sizes.items()))


class _Move:
    """The programs that move the tuples of values of one column from part to part."""

    def __init__(self, pieces: Pieces, i: int, place: int, limbs: int) -> None:
        partition = pieces.partitions[i]
        column, shape = partition.columns[place], partition.delta
        self.tuples = Table(shape.keys, len(shape.parts), shape.limbs, name="moving")
        key, others = column.expressions, [name for name in shape.variables if name not in column.expressions]
        values = Shape(key, tuple(len(shape.places([name])) for name in key), (COUNT,), 1)
        width, table = values.keys, partition.store.table
        index = partition.store.indexes.index(key)
        collect = Assembler()
        collect.lift(width + 1, 1, -1, [], range(width), [])
        collect.path(pieces.number)
        collect.extend([side_of(table, shape, index, values, key, others)], Join(values, frozenset(), shape, shape))
        collect.upsert(self.tuples)
        collect.path_end()
        take, put, sweep = Assembler(), Assembler(), Assembler()
        for program, times in ((take, -1), (put, 1)):
            program.scan(self.tuples)
            pieces.add_status(program, partition)
            pieces.add_moves(program, partition.store, column, times, limbs)
        sweep.finish(at.SWEEP, [*pieces.tables(), *pieces.shared_tables()], pieces.number)
        programs: list[Program] = [program.program() for program in (collect, take, put, sweep)]
        self.collect, self.take, self.put, self.sweep = programs

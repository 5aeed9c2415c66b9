"""Keeping a triangle's values heavy or light: thresholds, their upkeep after epochs, and the figures.

Of N tuples, a value with at least N^eps of them is heavy when a partition is made; until the next one a heavy value may
fall to half of that, a light one rise to one and a half times it. What crosses these bounds changes its status and its
tuples their parts (a minor rebalance); when the number of tuples has doubled, or fallen to a quarter, N is set anew and
everything is partitioned again (a major one). Both are paid for by the updates that made them necessary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from maintenance.critical import Uninterrupted
from maintenance.machine import Machine, Program
from maintenance.paths import side_of
from maintenance.programs import Assembler, Join
from maintenance.shapes import COUNT, Shape
from maintenance.skew import PARTS, Column, Triangle
from storage import layout as at
from storage.table import Table


@dataclass(frozen=True)
class SkewFigures:
    """The partition as it is: by edge heavy values of both columns and the sizes of HH, HL, LH and LL, by product
    its entries; and how many values have changed their status, and how often everything was partitioned again."""

    epsilon: float
    threshold: float
    base: int
    size: int
    heavy: tuple[tuple[int, int], ...]
    parts: tuple[tuple[int, int, int, int], ...]
    products: tuple[int, ...]
    minors: int
    majors: int


class Balance:
    """The driver of a triangle's partition: 0 < `epsilon` < 1, `base` is N, `bounds` are what the kernels compare with.

    `stale` says that the tables have to be made anew from the stores, which `refresh` does.
    """

    def __init__(self, triangle: Triangle, epsilon: float) -> None:
        self.triangle, self.epsilon = triangle, epsilon
        self.base = self.minors = self.majors = 0
        self.stale = True
        self._moves: dict[tuple[int, int], _Move] = {}

    @property
    def threshold(self) -> float:
        """The degree from which on a value is heavy when it is partitioned."""
        return float(self.base**self.epsilon)

    @property
    def size(self) -> int:
        """The number of distinct tuples of the three atoms. O(1)."""
        triangle = self.triangle
        return triangle.copies * sum(triangle.partitions[i].store.table.live for i in triangle.distinct)

    def figures(self) -> SkewFigures:
        """The partition's figures. O(1)."""
        heavy: list[tuple[int, int]] = []
        parts: list[tuple[int, int, int, int]] = []
        for i in self.triangle.distinct:
            partition = self.triangle.partitions[i]
            one, two, three = (partition.parts[name].live for name in PARTS)
            heavy.append((partition.columns[0].heavy.live, partition.columns[1].heavy.live))
            parts.append((one, two, three, partition.store.table.live - one - two - three))
        return SkewFigures(
            self.epsilon, self.threshold, self.base, self.size, tuple(heavy), tuple(parts),
            tuple(self.triangle.products[i].live for i in self.triangle.distinct), self.minors, self.majors,
        )  # fmt: skip

    def widen(self) -> None:
        """Sums of the last epoch, now taken back, did not fit. Programs have to be assembled again."""
        self.triangle.widen()

    def refresh(self, machine: Machine) -> None:
        """Fit the tables to the stores, whose layout may have changed. O(N^1.5) if stale, else O(rows)."""
        self._moves.clear()
        self.triangle.fit()
        if self.stale:
            self.base = self.base or 2 * self.size + 1
            self._rebuild(machine)
            self.stale = False

    def rebalance(self, machine: Machine) -> bool:
        """Bring everything within bounds, between epochs. True if values have become wider: programs have to be
        assembled again.

        Amortised O(N^max(eps, 1-eps)) per changed row; Ctrl-C waits for its end.
        """
        limbs = self.triangle.limbs
        with Uninterrupted():
            base = fitting_base(self.base, self.size)
            if base != self.base:
                self.base = base
                self.majors += 1
                self._rebuild(machine)
            elif self._move_all(machine) & at.OVERFLOW:
                self.triangle.widen()
                self._rebuild(machine)
        return self.triangle.limbs != limbs

    # Partitioning anew ---------------------------------------------------------------------------

    def _rebuild(self, machine: Machine) -> None:
        """Partition strictly by the present threshold, with wider values as they prove needed."""
        theta = self.threshold
        self.triangle.bounds[:] = math.ceil(theta / 2), math.ceil(1.5 * theta), self.base // 4, self.base
        while True:
            for table in self.triangle.all_tables():
                table.reset()
            if self._fill(machine) & at.OVERFLOW == 0:
                return
            self._moves.clear()
            self.triangle.widen()

    def _fill(self, machine: Machine) -> int:
        flags = 0
        for i in self.triangle.distinct:
            partition = self.triangle.partitions[i]
            for column in partition.columns:
                keys, sizes = _groups(self.triangle, i, column).members()
                self._mark(machine, column, keys[sizes >= self.threshold], 1)
        for i in self.triangle.distinct:
            table = self.triangle.partitions[i].store.table
            assembler = Assembler()
            assembler.scan(table)
            self.triangle.add_status(assembler, i)
            self.triangle.add_part_paths(assembler, i)
            flags |= machine.run(assembler.program(), rows=int(table.header[at.USED]))
        return flags

    # Moving values -------------------------------------------------------------------------------

    def _move_all(self, machine: Machine) -> int:
        """Change the status of all pending values that are out of bounds; returns the flags."""
        flags = 0
        for i in self.triangle.distinct:
            for place, column in enumerate(self.triangle.partitions[i].columns):
                keys = np.array(sorted(column.pending.rows()), np.int64).reshape(-1, column.pending.keys)
                column.pending.reset()
                heavy = self._crossing(i, column, keys)
                for status in (0, 1):
                    moving = keys[heavy == status]
                    if len(moving):
                        flags |= self._move(machine, i, place, moving, promote=status == 1)
        return flags

    def _crossing(self, i: int, column: Column, keys: np.ndarray) -> np.ndarray:
        """By value: 1 if it has to become heavy, 0 if it has to become light, else -1."""
        lower, upper = (int(bound) for bound in self.triangle.bounds[[at.BOUND_LOWER, at.BOUND_UPPER]])
        group = _groups(self.triangle, i, column)
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
            self._moves[i, place] = _Move(self.triangle, i, place)
        move = self._moves[i, place]
        column = self.triangle.partitions[i].columns[place]
        data = np.ascontiguousarray(np.column_stack([keys, np.ones(len(keys), np.int64)]))
        flags = machine.run(move.collect, data, len(data))
        rows = int(move.tuples.header[at.USED])
        flags |= machine.run(move.take, rows=rows)
        self._mark(machine, column, keys, 1 if promote else -1)
        flags |= machine.run(move.put, rows=rows)
        move.tuples.reset()
        if machine.run_once(move.sweep) & at.SHRINK:
            for table in self.triangle.tables():
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
        assembler.path(self.triangle.owner)
        assembler.upsert(column.heavy)
        assembler.path_end()
        machine.run(assembler.program(), data, len(data))
        sweep.finish(at.SWEEP, [column.heavy], self.triangle.owner)
        machine.run_once(sweep.program())

    # Invariants ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of the partition and of what is made of it. O(size * degree), between epochs only."""
        low, high = self.triangle.bounds[at.BOUND_SMALLEST], self.triangle.bounds[at.BOUND_LIMIT]
        assert (low, high) == (self.base // 4, self.base) and low <= self.size < high, "the size is out of bounds"
        for i in self.triangle.distinct:
            self._check_partition(i)
        for i in self.triangle.distinct:
            self._check_product(i)
        for table in self.triangle.all_tables():
            table._check()

    def _check_partition(self, i: int) -> None:
        triangle, partition, theta = self.triangle, self.triangle.partitions[i], self.threshold
        shape, edge = triangle.shape(i), triangle.edges[i]
        status = []
        for column, variable in zip(partition.columns, (edge.first, edge.second), strict=True):
            assert column.pending.live == 0, "values wait for a rebalance"
            heavy, places = set(column.heavy.rows()), shape.places([variable])
            keys, sizes = _groups(triangle, i, column).members()
            degrees = {tuple(map(int, key)): int(size) for key, size in zip(keys, sizes, strict=True)}
            assert heavy <= degrees.keys(), "a heavy value is not there"
            assert all(degrees[key] >= theta / 2 for key in heavy), "a heavy value has too few tuples"
            light = degrees.keys() - heavy
            assert all(degrees[key] < 1.5 * theta for key in light), "a light value has too many tuples"
            status.append((heavy, places))
        expected: dict[str, dict[tuple[int, ...], tuple[int, ...]]] = {name: {} for name in (*PARTS, "LL")}
        for key, values in partition.store.table.rows().items():
            letters = ["H" if tuple(key[p] for p in places) in heavy else "L" for heavy, places in status]
            expected["".join(letters)][key] = values
        for name, part in partition.parts.items():
            assert part.rows() == expected[name], f"part {name} is wrong"

    def _check_product(self, i: int) -> None:
        triangle, after = self.triangle, (i + 1) % 3
        one, other, shape = triangle.shape(i), triangle.shape(after), triangle.product_shape(i)
        edges = triangle.edges
        own = one.places([edges[i].first]), one.places([edges[i].second])
        far = other.places([edges[after].first]), other.places([edges[after].second])
        pairs = []
        for part in shape.parts:
            left = frozenset(pair for pair in part if pair[0] == edges[i].atom)
            pairs.append((one.parts.index(left), other.parts.index(part - left)))
        expected: dict[tuple[int, ...], list[int]] = {}
        right = triangle.partitions[after].parts["LH"].rows()
        for key, values in triangle.partitions[i].parts["HL"].rows().items():
            for partner, factors in right.items():
                if [key[p] for p in own[1]] == [partner[p] for p in far[0]]:
                    outer = (*(key[p] for p in own[0]), *(partner[p] for p in far[1]))
                    sums = expected.setdefault(outer, [0] * len(pairs))
                    for v, (a, b) in enumerate(pairs):
                        sums[v] += values[a] * factors[b]
        assert triangle.products[i].rows() == {k: tuple(v) for k, v in expected.items()}, "a product is wrong"


def fitting_base(base: int, size: int) -> int:
    """N for this many tuples: the present one while floor(N/4) <= size < N, else doubled or halved until it fits."""
    while size >= base:
        base *= 2
    while size < base // 4:
        base = base // 2 - 1
    return base


class _Move:
    """The programs that move the tuples of values of one column from part to part."""

    def __init__(self, triangle: Triangle, i: int, place: int) -> None:
        partition, shape, edge = triangle.partitions[i], triangle.shape(i), triangle.edges[i]
        self.tuples = Table(shape.keys, len(shape.parts), shape.limbs, name="moving")
        variables = (edge.first, edge.second)
        key, other = variables[place], variables[1 - place]
        width = len(shape.places([key]))
        values = Shape((key,), (width,), (COUNT,), 1)
        table = partition.store.table
        index = partition.store.indexes.index((partition.columns[place].expression,))
        collect = Assembler()
        collect.lift(width + 1, 1, -1, [], range(width), [])
        collect.path(triangle.owner)
        side = side_of(table, shape, index, values, (key,), (other,))
        collect.extend([side], Join(values, frozenset(), shape, shape))
        collect.upsert(self.tuples)
        collect.path_end()
        take, put, sweep = Assembler(), Assembler(), Assembler()
        for program, times in ((take, -1), (put, 1)):
            program.scan(self.tuples)
            triangle.add_status(program, i)
            triangle.add_part_paths(program, i, times)
        sweep.finish(at.SWEEP, triangle.tables(), triangle.owner)
        programs: list[Program] = [program.program() for program in (collect, take, put, sweep)]
        self.collect, self.take, self.put, self.sweep = programs


def _groups(triangle: Triangle, i: int, column: Column) -> Table:
    """The group table of a column of edge i's store."""
    store = triangle.partitions[i].store
    return store.table.groups[store.indexes.index((column.expression,))]

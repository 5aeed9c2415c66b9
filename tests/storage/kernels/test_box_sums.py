"""Sums over boxes against sums over all rows: any writes, groups, bounds of both orders, undo, widening, compaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.programs import PASSING, Assembler, Join, WordTest
from sqlfront.maintenance.program.shapes import COUNT, Shape
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.words import words_at
from tests.storage.kernels.test_range_sums import LARGE, VALUE, WrittenTable, add, sweep

Key = tuple[int, int, int, int]
"""A row: its group, what is bounded first, what is bounded second, and what is not."""
FIRST, SECOND = [(1, at.ORDER_WORD, 0)], [(2, at.ORDER_WORD, 0)]
PLACES = [(0, at.ORDER_WORD, 0)]
BOUNDS = [">", ">=", "<", "<="]


class BoxedTable(WrittenTable):
    """Sums of a table with a key are those of one group. The rows of a small group are added up one by one."""

    @initialize(limbs=st.integers(1, 2), is_keyed=st.booleans())
    def start(self, limbs: int, is_keyed: bool) -> None:
        self.machine, self.table, self.is_keyed = Machine(), boxed_table(limbs, is_keyed), is_keyed
        self.counts: Counter[Key] = Counter()
        self.values: Counter[Key] = Counter()

    @rule(
        rows=st.integers(1, 250),
        seed=st.integers(0, 10**6),
        spread=st.sampled_from([2, 9, 200]),
        value=st.sampled_from([0, 1, -5, LARGE]),
    )
    def insert(self, rows: int, seed: int, spread: int, value: int) -> None:
        numbers = np.random.default_rng(seed).integers(-spread, spread + 1, (rows, 4)).tolist()
        self.write([(group % 2, first, second, own % 2, 1, value) for group, first, second, own in numbers])

    @rule(seed=st.integers(0, 10**6))
    def undo(self, seed: int) -> None:
        """A batch of which values may not fit, a sum on the way, and the batch's inverse: all is as it was."""
        numbers = np.random.default_rng(seed).integers(-9, 10, (40, 3)).tolist()
        rows = [(0, first, second, own % 2, 1, LARGE) for first, second, own in numbers]
        add(self.machine, self.table, rows)
        box_sums(self.machine, self.table, [(0, -5, 5, -5, 5)], (">", "<", ">", "<"), self.is_keyed)
        self.write([(*key, -count, -value) for *key, count, value in rows], undo=True)

    @rule(index=st.sampled_from([-1, 0]))
    def compact(self, index: int) -> None:
        self.table.compact(index)

    @rule()
    def widen(self) -> None:
        if self.table.limbs < 4:
            self.table.widen(self.table.limbs + 1)

    @rule(
        bounds=st.tuples(*(st.integers(-10, 10) for _ in range(4))),
        operators=st.tuples(*(st.sampled_from([None, *two]) for two in (BOUNDS[:2], BOUNDS[2:]) * 2)),
        group=st.integers(0, 2),
    )
    def sum_box(self, bounds: tuple[int, int, int, int], operators: tuple[str | None, ...], group: int) -> None:
        self.check(group, bounds, operators)

    @invariant()
    def sums_are_those_of_the_rows(self) -> None:
        """Of what waits too, and of no other group."""
        for group in (0, 1) if hasattr(self, "table") else ():
            for bounds in ((-(10**6), 10**6, -(10**6), 10**6), (-40, 7, -9, 60)):
                self.check(group, bounds, (">=", "<", ">", "<="))

    def check(self, group: int, bounds: tuple[int, int, int, int], operators: tuple[str | None, ...]) -> None:
        met = [key for key in self.counts if key[0] == group or not self.is_keyed]
        inside = [key for key in met if is_inside(key, bounds, operators)]
        expected = sum(self.counts[key] for key in inside), sum(self.values[key] for key in inside)
        asked = (group, *bounds)
        found = box_sums(self.machine, self.table, [asked], operators, self.is_keyed)
        assert found == ({asked: expected} if any(expected) else {})

    @invariant()
    def runs_are_sorted_and_few(self) -> None:
        if hasattr(self, "table"):
            self.table._check()
            check_runs(self.table, self.is_keyed)


TestBoxedTable = BoxedTable.TestCase
TestBoxedTable.settings = settings(max_examples=60, stateful_step_count=20)


@pytest.mark.parametrize("way", ["ascending", "random"])
def test_steps_grow_as_the_square_of_the_logarithm(way: str) -> None:
    """A sum over a quarter of a group; insertions and deletions of as many rows as there are, each with a sum."""
    found = {size: steps_of(size, way) for size in (1000, 8000, 40_000)}
    for size, (asked, written) in found.items():
        assert asked < 3 * np.log2(size) ** 2, found
        assert written < 6 * np.log2(size) ** 2, found


def steps_of(size: int, way: str) -> tuple[float, float]:
    """The steps of a sum, and of a change with a sum after it."""
    machine, table = Machine(), boxed_table(1)
    generator = np.random.default_rng(1)
    first = np.arange(2 * size) if way == "ascending" else generator.permutation(2 * size)
    second = first if way == "ascending" else generator.permutation(2 * size)
    add(machine, table, [(0, a, b, 0, 1, 1) for a, b in zip(first[:size].tolist(), second[:size].tolist())])
    whole = [(0, 0, 2 * size, 0, 2 * size)]
    assert box_sums(machine, table, whole, (">=", "<", ">=", "<")) == {whole[0]: (size, size)}
    places = range(0, size, size // 100)
    asked = [(0, int(first[place]), size, int(second[place]), size) for place in places]
    before = int(machine.scratch[at.STEPS])
    sums = box_sums(machine, table, asked, (">=", None, ">=", None))
    steps = (int(machine.scratch[at.STEPS]) - before) / len(asked)
    for (_, low, _, below, _), (count, _) in sums.items():
        assert count == int(((first[:size] >= low) & (second[:size] >= below)).sum())
    before, batch, rows = int(machine.scratch[at.STEPS]), 50, list(zip(first.tolist(), second.tolist()))
    for start in range(size, 2 * size, batch):
        gone = [(0, a, b, 0, -1, -1) for a, b in rows[start - size : start - size + batch]]
        add(machine, table, [(0, a, b, 0, 1, 1) for a, b in rows[start : start + batch]] + gone)
        sweep(machine, table)
        box_sums(machine, table, [(0, 0, size, 0, size)] * (2 * batch), (">", "<", ">", "<"))
    check_runs(table)
    assert box_sums(machine, table, whole, (">=", "<", ">=", "<")) == {whole[0]: (size, size)}
    return steps, (int(machine.scratch[at.STEPS]) - before) / (2 * size)


def boxed_table(limbs: int, is_keyed: bool = True) -> Table:
    return Table(4, 2, limbs, [(0,)], name="t", boxes=([0] if is_keyed else [], FIRST, SECOND))


def check_runs(table: Table, is_keyed: bool = True) -> None:
    """Each run has more entries than those after it together, and none of them is in vain."""
    boxes = words_at(table.header[at.BOXES], at.BOX_WORDS)
    runs = [words_at(boxes[at.BOX_RUN + i], at.RUN_HEADER) for i in range(boxes[at.BOX_RUNS])]
    sizes = [int(run[at.RUN_SIZE]) for run in runs]
    assert all(size > sum(sizes[place + 1 :]) for place, size in enumerate(sizes)), sizes
    assert boxes[at.BOX_BYTES] == sum(int(run[at.RUN_BYTES]) for run in runs)
    if boxes[at.BOX_NEW + at.LIST_USED] == at.UNMADE:
        assert not sizes
    width = table.keys + table.values * (table.limbs + 1)
    for run, size in zip(runs, sizes, strict=True):
        entries = words_at(run[at.RUN_ENTRIES], size * width).reshape(size, width)
        keys = [tuple(entry[[0, 1] if is_keyed else [1]].tolist()) for entry in entries]
        assert keys == sorted(keys)
        assert len({tuple(entry[:4].tolist()) for entry in entries}) == size
        assert entries[:, 4:].any(axis=1).all()
        listed = words_at(run[at.RUN_SECOND], (size + 1) // 2).view(np.int32)[:size]
        assert sorted(listed.tolist()) == list(range(size))
        assert (np.diff(entries[listed, 2]) >= 0).all()


def is_inside(key: Key, bounds: tuple[int, int, int, int], operators: tuple[str | None, ...]) -> bool:
    passes = {">": int.__gt__, ">=": int.__ge__, "<": int.__lt__, "<=": int.__le__}
    values = (key[1], key[1], key[2], key[2])
    return all(one is None or passes[one](value, bound) for value, bound, one in zip(values, bounds, operators))


def box_sums(
    machine: Machine,
    table: Table,
    asked: Sequence[tuple[int, ...]],
    operators: tuple[str | None, ...],
    is_keyed: bool = True,
) -> dict[tuple[int, ...], tuple[int, int]]:
    """The sums of the rows of a group, or of all, within bounds of the first order and of the second, for each (group,
    bounds)."""
    parts = (COUNT, VALUE)
    delta = Shape(("g", "a", "b", "c", "d"), (1,) * 5, (COUNT,), 1)
    sums, out = Shape((), (), parts, table.limbs + 1), Shape(delta.variables, delta.widths, parts, table.limbs + 1)
    mirrored = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
    tests: list[list[WordTest]] = [[], []]
    for place, operator in enumerate(operators):
        if operator is not None:
            tests[place // 2].append(WordTest(PASSING[mirrored[operator]], 1 + place, 1 + place // 2, PLACES))
    found = Table(5, 2, out.limbs)
    assembler = Assembler()
    assembler.lift(6, 1, -1, [], list(range(5)), [])
    assembler.path(0)
    assembler.box_sum(table, 0, [0] if is_keyed else [], tests, Join(delta, frozenset(), sums, out))
    assembler.upsert(found)
    assembler.path_end()
    machine.run(assembler.program(), np.array([(*row, 1) for row in asked], np.int64), len(asked))
    return {key: (values[0], values[1]) for key, values in found.rows().items()}

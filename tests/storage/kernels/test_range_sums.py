"""Subtree sums of ordered groups: sums over any range, against lists, through every way in which rows change."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.programs import PASSING, Assembler, Join, WordTest
from sqlfront.maintenance.program.shapes import COUNT, Shape
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables.delta import step_upsert
from sqlfront.storage.stores.ordered_rows import OrderedRows
from sqlfront.storage.stores.table import Table

VALUE = frozenset({("t", "v")})
PLACES, BY_NUMBER, BY_ID = [(0, at.ORDER_WORD, 0)], [(1, at.ORDER_WORD, 0)], [(2, at.ORDER_WORD, 0)]
LARGE = 2**63 - 1

Key = tuple[int, int, int]


class WrittenTable(RuleBasedStateMachine):
    """A table, and the counts and values that its rows have. A row's key is words; a value may be large."""

    machine: Machine
    table: Table
    counts: Counter[tuple[int, ...]]
    values: Counter[tuple[int, ...]]
    scale = 1

    @rule(share=st.integers(1, 4), first=st.integers(0, 3))
    def delete(self, share: int, first: int) -> None:
        gone = sorted(self.counts.items())[first::share]
        self.write([(*key, -count, -self.values[key] // self.scale) for key, count in gone])

    @rule(share=st.integers(1, 4), first=st.integers(0, 3), change=st.sampled_from([1, -1, LARGE]))
    def change_values(self, share: int, first: int, change: int) -> None:
        self.write([(*key, 0, change) for key in sorted(self.counts)[first::share]])

    def write(self, rows: Sequence[tuple[int, ...]], undo: bool = False) -> None:
        overflow = add(self.machine, self.table, rows, self.scale)
        if not undo:
            if overflow:
                add(self.machine, self.table, [(*key, -count, -value) for *key, count, value in rows], self.scale)
                self.table.widen(self.table.limbs + 1)
                assert not add(self.machine, self.table, rows, self.scale)
            for *key, count, value in rows:
                self.counts[tuple(key)] += count
                self.values[tuple(key)] += value * self.scale
        sweep(self.machine, self.table)
        self.counts = +self.counts
        self.values = Counter({key: self.values[key] for key in self.counts})

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.delete(1, 0)
            assert self.table.entries() == 0


class RangedTable(WrittenTable):
    """Keys (group, number, id), each group sorted by number and id; a count and a value that may be large."""

    @initialize(limbs=st.integers(1, 2), extreme=st.sampled_from([None, 0, at.ORDER_DESCENDING]), peers=st.booleans())
    def start(self, limbs: int, extreme: int | None, peers: bool) -> None:
        self.machine = Machine()
        self.extreme, self.peers = extreme, int(extreme is not None) if peers else None
        extremes = [] if extreme is None else [(at.SUMMARY_EXTREME, [(2, at.ORDER_WORD | extreme, 0)])]
        self.table = ranged_table(limbs, extremes + [(at.SUMMARY_PEERS, BY_NUMBER)] * peers)
        self.counts: Counter[Key] = Counter()
        self.values: Counter[Key] = Counter()
        self.scale = 1

    @rule(
        batch=st.lists(
            st.tuples(st.integers(0, 1), st.integers(-9, 9), st.integers(0, 2), st.sampled_from([0, 1, -5, LARGE])),
            max_size=30,
        )
    )
    def insert(self, batch: list[tuple[int, int, int, int]]) -> None:
        self.write([(group, number, own, 1, value) for group, number, own, value in batch])

    @rule()
    def undo(self) -> None:
        """A batch of which one value may not fit, and its inverse: everything is as it was."""
        rows = [(0, number, number % 3, 1, LARGE) for number in range(-9, 10)]
        add(self.machine, self.table, rows, self.scale)
        self.write([(*key, -count, -value) for *key, count, value in rows], undo=True)

    @rule(index=st.sampled_from([-1, 0, 1]))
    def compact(self, index: int) -> None:
        self.table.compact(index)

    @rule()
    def widen(self) -> None:
        if self.table.limbs < 4:
            self.table.widen(self.table.limbs + 1)

    @rule()
    def rescale(self) -> None:
        if self.table.limbs < 4 and self.scale == 1:
            self.table.widen(self.table.limbs + 1)
            self.table.rescale(1, 64)
            self.scale = 2**64
            self.values = Counter({key: value << 64 for key, value in self.values.items()})

    @rule(low=st.integers(-10, 10), high=st.integers(-10, 10), group=st.integers(0, 2))
    def sum_between(self, low: int, high: int, group: int) -> None:
        for lower, upper in [(">", "<="), (">=", "<"), (">", None), (None, "<="), (None, None)]:
            inside = [
                key
                for key in self.counts
                if key[0] == group
                and (lower is None or key[1] > low or (key[1] == low and lower == ">="))
                and (upper is None or key[1] < high or (key[1] == high and upper == "<="))
            ]
            expected = sum(self.counts[key] for key in inside), sum(self.values[key] for key in inside)
            found = range_sums(self.machine, self.table, [(group, low, high)], lower, upper)
            assert found == ({(group, low, high): expected} if inside else {})

    @rule(low=st.integers(-10, 10), high=st.integers(-10, 10), bound=st.integers(-1, 3), group=st.integers(0, 2))
    def list_box(self, low: int, high: int, bound: int, group: int) -> None:
        """The rows between two numbers whose ids pass a bound: not less than it, or not greater where they descend."""
        if self.extreme is not None:
            met = (lambda own: own >= bound) if self.extreme == 0 else (lambda own: own <= bound)
            inside = {key for key in self.counts if key[0] == group and low <= key[1] <= high and met(key[2])}
            assert listed_box(self.machine, self.table, (group, low, high, bound), self.extreme == 0) == inside

    @rule(group=st.integers(0, 2))
    def find_positions(self, group: int) -> None:
        members = [tuple(words[:3]) for words in self.table.members_of(0, [group])]
        assert members == sorted(members, key=lambda key: key[1])
        rows = OrderedRows(self.table)
        check_positions(rows, group, [(key, self.counts[key], self.values[key]) for key in members])
        copies = [key for key in members for _ in range(self.counts[key])]
        if self.extreme is not None:
            check_extremes(rows, group, copies, self.extreme == 0)
        if self.peers is not None:
            check_peers(rows, group, copies, self.peers)
        assert len(rows.all_groups()) == len({key[0] for key in self.counts})

    @invariant()
    def sums_are_those_of_the_rows(self) -> None:
        if hasattr(self, "table"):
            self.table._check()
            assert self.table.rows() == {key: (count, self.values[key]) for key, count in self.counts.items()}


TestRangedTable = RangedTable.TestCase
TestRangedTable.settings = settings(max_examples=40, stateful_step_count=15)


def check_positions(rows: OrderedRows, group: int, members: list[tuple[Key, int, int]]) -> None:
    """A position finds what a list finds: `members` are the rows of the group in order, with counts and values."""
    copies = [(key, number) for key, count, _ in members for number in range(count)]
    [found] = rows.groups(np.array([[group]]))
    assert rows.copies(np.array([found])).tolist() == [len(copies)]
    asked = np.arange(-1, len(copies) + 1)
    selected, numbers = rows.select(np.full(len(asked), found), asked)
    keys = list(zip(*rows.gather(selected, range(3)).tolist(), strict=True))
    nowhere = ((at.NULL_CODE,) * 3, 0)
    assert list(zip(keys, numbers.tolist(), strict=True)) == [nowhere, *copies, nowhere]
    addresses = rows.rows(np.array([key for key, _, _ in members], np.int64).reshape(-1, 3))
    assert rows.members(np.array([found]))[1].tolist() == addresses.tolist()
    assert (rows.groups_of(addresses) == found).all()
    for copy in (0, 2):
        groups, positions, sizes = rows.locate(addresses, np.full(len(members), copy))
        assert (groups == found).all() and (sizes == len(copies)).all()
        assert positions.tolist() == [copy + copies.index((key, 0)) for key, _, _ in members]
    before = [(0, 0)]
    for _, count, value in members:
        copied, total = before[-1]
        before += [(copied + number, total + value * number // count) for number in range(1, count + 1)]
    starts = np.arange(len(before) // 2 + 1)
    sums = rows.frame_sums(np.full(len(starts), found), starts, len(before) - 1 - starts // 2)
    for words, start in zip(sums, starts.tolist(), strict=True):
        (first, low), (last, high) = before[start], before[len(before) - 1 - start // 2]
        assert list(map(number_of, words)) == [last - first, high - low]
    for inclusive, compare in ((False, operator.lt), (True, operator.le)):
        positions = rows.positions_of(np.full(len(members), found), addresses, 1, inclusive=inclusive)
        assert positions.tolist() == [sum(compare(key[1], own[1]) for key, _ in copies) for own, _, _ in members]


def check_extremes(rows: OrderedRows, group: int, copies: list[Key], greatest: bool) -> None:
    """The greatest, or the least, id in each range of positions; `copies` are those of the rows of a group in order."""
    numbers = range(-1, len(copies) + 2)
    ranges = [(start, end) for start in numbers for end in numbers[:: max(1, len(copies) // 8)]]
    starts, ends = np.array(ranges, np.int64).T
    groups = np.repeat(rows.groups(np.array([[group]])), len(ranges))
    [found] = rows.gather(rows.frame_extremes(groups, starts, ends, 0), [2]).tolist()
    best = max if greatest else min
    inside = [[key[2] for key in copies[max(start, 0) : max(end, 0)]] for start, end in ranges]
    assert found == [best(ids, default=at.NULL_CODE) for ids in inside]


def check_peers(rows: OrderedRows, group: int, copies: list[Key], summary: int) -> None:
    """Peers have the same number. Those of a number begin at a position, and so many come before a probe."""
    numbers = [key[1] for key in copies]
    starts = [place for place, number in enumerate(numbers) if number not in numbers[:place]]
    asked, probes = np.arange(-2, len(starts) + 2), np.array([(group, number, 0) for number in range(-10, 11)])
    groups = np.repeat(rows.groups(np.array([[group]])), max(len(asked), len(probes)))
    found = rows.peer_starts(groups[: len(asked)], asked, summary)
    assert found.tolist() == [0, 0, *starts, len(copies), len(copies)]
    addresses = probes.ctypes.data + np.arange(len(probes)) * probes.strides[0]
    before = rows.peers_before(groups[: len(probes)], addresses, summary)
    assert before.tolist() == [len({one for one in numbers if one < number}) for _, number, _ in probes.tolist()]


def number_of(words: np.ndarray) -> int:
    return int.from_bytes(words.tobytes(), "little", signed=True)


@pytest.mark.parametrize("way", ["ascending", "random"])
def test_steps_grow_as_the_logarithm(way: str) -> None:
    """A sum over half of a group, a change of a value, an insertion and a deletion: over three decades of its size."""
    steps = {size: steps_of(size, way) for size in (1000, 10_000, 100_000)}
    for size, found in steps.items():
        assert max(found) < 8 * np.log2(size), found
    assert all(after > before for before, after in zip(steps[1000][:2], steps[100_000][:2], strict=True))


def steps_of(size: int, way: str) -> list[float]:
    machine, table = Machine(), ranged_table(1)
    numbers = np.arange(size) * 2
    if way == "random":
        np.random.default_rng(1).shuffle(numbers)
    add(machine, table, [(0, int(number), 0, 1, 1) for number in numbers])
    found = []

    def count(work: object) -> None:
        found.append((int(machine.scratch[at.STEPS]) - before) / 100)

    chosen = [int(number) for number in numbers[:: size // 100]]
    before = int(machine.scratch[at.STEPS])
    sums = range_sums(machine, table, [(0, number, number + size) for number in chosen], ">=", "<")
    count(sums)
    for (_, low, _), (rows, _) in sums.items():
        assert rows == (min(low + size, 2 * size) - low) // 2
    before = int(machine.scratch[at.STEPS])
    count(add(machine, table, [(0, number, 0, 0, 5) for number in chosen]))
    before = int(machine.scratch[at.STEPS])
    count(add(machine, table, [(0, number + 1, 0, 1, 5) for number in chosen]))
    before = int(machine.scratch[at.STEPS])
    add(machine, table, [(0, number + 1, 0, -1, -5) for number in chosen])
    count(sweep(machine, table))
    if size <= 1000:  # It looks at every row, in Python.
        table._check()
    return found


def ranged_table(limbs: int, summaries: Sequence[tuple[int, list[tuple[int, int, int]]]] = ()) -> Table:
    return Table(3, 2, limbs, [(0,), (1,)], name="t", order=(0, BY_NUMBER + BY_ID), ranges=True, summaries=summaries)


def listed_box(machine: Machine, table: Table, asked: tuple[int, int, int, int], greatest: bool) -> set[Key]:
    """The keys of the rows of a group between two numbers, with an id that is not less, or greater, than a bound."""
    delta = Shape(("g", "low", "high", "bound"), (1, 1, 1, 1), (COUNT,), 1)
    own = Shape(("g", "number", "id"), (1, 1, 1), (COUNT, VALUE), table.limbs)
    out = Shape(own.variables, own.widths, (COUNT,), table.limbs)
    tests = [WordTest(PASSING["<="], 1, 1, PLACES), WordTest(PASSING[">="], 2, 1, PLACES)]
    beside = WordTest(PASSING["<=" if greatest else ">="], 3, 2, PLACES)
    found = Table(3, 1, table.limbs)
    assembler = Assembler()
    assembler.lift(5, 1, -1, [], [0, 1, 2, 3], [])
    assembler.path(0)
    assembler.range(table, 0, [0], tests, Join(delta, frozenset(), own, out), beside)
    assembler.upsert(found)
    assembler.path_end()
    machine.run(assembler.program(), np.array([(*asked, 1)], np.int64), 1)
    return {(key[0], key[1], key[2]) for key in found.rows()}


def add(machine: Machine, table: Table, rows: Sequence[tuple[int, ...]], scale: int = 1) -> bool:
    """Add rows (key words, count, value) to the table, not sweeping it; whether a value did not fit."""
    words = [
        word
        for *key, count, value in rows
        for word in (*key, *limbs_of(count, table.limbs), *limbs_of(value * scale, table.limbs))
    ]
    data, program = np.array(words, np.int64), np.array([at.UPSERT, 3, table.address], np.int64)
    machine.scratch[at.FLAGS] = 0
    step_upsert(program.ctypes.data, machine.address, data.ctypes.data, len(rows))
    return bool(machine.scratch[at.FLAGS] & at.OVERFLOW)


def limbs_of(value: int, limbs: int) -> list[int]:
    """A number's words, modulo their width."""
    whole = (value % 2 ** (64 * limbs)).to_bytes(8 * limbs, "little")
    return [int(word) for word in np.frombuffer(whole, np.int64)]


def sweep(machine: Machine, table: Table) -> None:
    assembler = Assembler()
    assembler.finish(at.SWEEP, [table])
    machine.run_once(assembler.program())


def range_sums(
    machine: Machine, table: Table, asked: list[tuple[int, int, int]], lower: str | None, upper: str | None
) -> dict[Key, tuple[int, int]]:
    """The sums of the rows of a group between two numbers, for each (group, low, high)."""
    parts = (COUNT, VALUE)
    delta = Shape(("g", "low", "high"), (1, 1, 1), (COUNT,), 1)
    sums, out = Shape((), (), parts, table.limbs + 1), Shape(delta.variables, delta.widths, parts, table.limbs + 1)
    tests = []
    if lower is not None:
        tests.append(WordTest(PASSING["<" if lower == ">" else "<="], 1, 1, PLACES))
    if upper is not None:
        tests.append(WordTest(PASSING[">" if upper == "<" else ">="], 2, 1, PLACES))
    found = Table(3, 2, out.limbs)
    assembler = Assembler()
    assembler.lift(4, 1, -1, [], [0, 1, 2], [])
    assembler.path(0)
    assembler.range_sum(table, 0, [0], tests, Join(delta, frozenset(), sums, out))
    assembler.upsert(found)
    assembler.path_end()
    machine.run(assembler.program(), np.array([(*row, 1) for row in asked], np.int64), len(asked))
    return {(key[0], key[1], key[2]): (values[0], values[1]) for key, values in found.rows().items()}

"""Table against a dictionary: any sequence of batches, sweeps, compactions and changes of width."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.storage.codecs.dictionary import Dictionary
from sqlfront.storage.codecs.sums import from_integers
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table

Key = tuple[int, ...]
rows = st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(-3, 3), st.integers(-(2**61), 2**61))


def upsert(machine: Machine, table: Table, data: list[tuple[int, ...]], keys: int, sign: int = 1) -> int:
    """Add rows (key words, weight) to a table; returns the flags."""
    program = Assembler()
    program.lift(keys + 1, table.limbs, -1, [], list(range(keys)), [])
    program.path(0)
    program.upsert(table)
    program.path_end()
    return machine.run(program.program(), np.array(data, np.int64).reshape(-1, keys + 1), len(data), sign)


def finish(machine: Machine, table: Table, operation: int = at.SWEEP) -> int:
    program = Assembler()
    program.finish(operation, [table])
    return machine.run_once(program.program())


class TableMachine(RuleBasedStateMachine):
    """Keys (a, b); values: the count and a sum of b * weight; groups by a (with sums), by b, and one of everything."""

    @initialize(limbs=st.integers(1, 3))
    def start(self, limbs: int) -> None:
        self.machine = Machine()
        self.table = Table(2, 2, limbs, [(0,), (1,), ()], [2, 0, 1], name="t")
        self.counts: Counter[Key] = Counter()
        self.sums: Counter[Key] = Counter()
        self.scale = 1

    @rule(batch=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(-2, 3)), max_size=12))
    def add(self, batch: list[tuple[int, int, int]]) -> None:
        self.write([row for row in batch if row[2] > 0 or self.counts[row[:2]] + row[2] >= 0])

    @precondition(lambda self: self.table.live < 500)
    @rule(many=st.integers(2049, 2100), group=st.integers(0, 2))
    def add_many(self, many: int, group: int) -> None:
        self.write([(group, 100 + i, 1) for i in range(many)])

    @rule(share=st.sampled_from([1, 2, 3]))
    def delete(self, share: int) -> None:
        present = [(*key, -n) for key, n in self.counts.items() if n > 0]
        self.write(present[::share])

    def write(self, batch: list[tuple[int, int, int]]) -> None:
        kept: list[tuple[int, ...]] = []
        for a, b, n in batch:
            if self.counts[a, b] + n < 0:
                continue
            kept.append((a, b, n))
            self.counts[a, b] += n
            self.sums[a, b] += n * b * self.scale
        factor = [(at.FACTOR_LIMBS, 1, 1)]
        program = Assembler()
        program.lift(3, self.table.limbs, -1, [], [0, 1], factor)
        if self.scale > 1:
            values = from_integers([b * self.scale for _, b, _ in kept], self.table.limbs)
            program = Assembler()
            program.lift(
                3 + self.table.limbs, self.table.limbs, -1, [], [0, 1], [(at.FACTOR_LIMBS, 2, self.table.limbs)]
            )
            data = np.empty((len(kept), 3 + self.table.limbs), np.int64)
            data[:, :2] = [row[:2] for row in kept] if kept else np.empty((0, 2))
            data[:, 2:-1] = values
            data[:, -1] = [row[2] for row in kept]
        else:
            data = np.array(kept, np.int64).reshape(-1, 3)
        program.path(0)
        program.upsert(self.table)
        program.path_end()
        assert self.machine.run(program.program(), data, len(data)) & at.OVERFLOW == 0
        if finish(self.machine, self.table) & at.SHRINK:
            self.table.shrink()

    @rule()
    def widen(self) -> None:
        if self.table.limbs < 5:
            self.table.widen(self.table.limbs + 1)

    @rule(bits=st.sampled_from([1, 63, 64, 65]))
    def rescale(self, bits: int) -> None:
        if self.scale << bits >= 2**200:
            return
        self.table.widen(self.table.limbs + 2)
        self.table.rescale(1, bits)
        self.scale <<= bits
        self.sums = Counter({key: total << bits for key, total in self.sums.items()})

    @precondition(lambda self: self.table.live >= 500)
    @rule()
    def check(self) -> None:
        self.table._check()

    @rule(index=st.sampled_from([-1, 0, 1, 2]))
    def compact(self, index: int) -> None:
        self.table.compact(index)
        if index >= 0:
            keys = [self.table.key_of(row) for row in range(self.table.live)]
            parts = [tuple(key[p] for p in self.table.indexes[index]) for key in keys]
            changes = sum(parts[i] != parts[i - 1] for i in range(1, len(parts)))
            assert changes == max(0, len(set(parts)) - 1), "a group's rows do not lie together"

    @invariant()
    def same_as_the_model(self) -> None:
        if not hasattr(self, "table"):
            return
        if self.table.live < 500:
            self.table._check()
        expected = {key: (n, self.sums[key]) for key, n in self.counts.items() if n}
        assert self.table.rows() == expected
        assert self.table.live == len(expected)

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.write([(*key, -n) for key, n in self.counts.items() if n])
            assert self.table.entries() == 0


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=20, stateful_step_count=12)


def test_colliding_hashes_and_chains_survive_deletes():
    """Thousands of keys in a table that grows from 8 slots; every other one deleted; the rest is still found."""
    machine, table = Machine(), Table(1, 1, name="t")
    upsert(machine, table, [(i * 2**40, 1) for i in range(20_000)], 1)
    upsert(machine, table, [(i * 2**40, -1) for i in range(0, 20_000, 2)], 1)
    finish(machine, table)
    assert set(table.rows()) == {(i * 2**40,) for i in range(1, 20_000, 2)}
    table._check()
    assert table.longest_probe() < 200


def test_a_negative_row_is_found_and_taken_back():
    machine, table = Machine(), Table(1, 1, indexes=[(0,)], name="t")
    upsert(machine, table, [(1, 2), (2, 1)], 1)
    finish(machine, table)
    upsert(machine, table, [(1, -1), (2, -3), (3, 0)], 1)
    assert finish(machine, table, at.CHECK) & at.VIOLATION
    assert int(machine.scratch[at.BAD_TABLE]) == table.address
    assert table.key_of(int(machine.scratch[at.BAD_ROW])) == (2,)
    upsert(machine, table, [(1, -1), (2, -3), (3, 0)], 1, -1)
    finish(machine, table)
    table._check()
    assert table.rows() == {(1,): (2,), (2,): (1,)}


def test_an_overflow_is_reported_and_taken_back_exactly():
    machine, table = Machine(), Table(1, 1, indexes=[()], summed=[1], name="t")
    assert upsert(machine, table, [(1, 2**62)], 1) == 0
    finish(machine, table)
    batch = [(1, 2**62), (2, 5)]
    assert upsert(machine, table, batch, 1) & at.OVERFLOW
    upsert(machine, table, batch, 1, -1)
    finish(machine, table)
    assert table.rows() == {(1,): (2**62,)}
    table.widen(2)
    assert upsert(machine, table, batch, 1) == 0
    assert table.rows() == {(1,): (2**63,), (2,): (5,)}
    assert table.groups[0].rows() == {(): (2**63 + 5,)}


def test_a_group_overflows_though_no_row_does():
    machine, table = Machine(), Table(1, 1, indexes=[()], summed=[1], name="t")
    assert upsert(machine, table, [(i, 2**61) for i in range(4)], 1) & at.OVERFLOW


@pytest.mark.parametrize("release", [True, False])
def test_references_to_a_dictionary_follow_the_rows(release):
    machine, dictionary = Machine(), Dictionary()
    header = int(dictionary.header.ctypes.data)
    table = Table(2, 1, references=[(0, header), (1, header)], name="t")
    x, y = (dictionary.encode_one(text) for text in (b"x", b"y"))
    upsert(machine, table, [(x, y, 1), (x, x, 2), (at.NULL_CODE, y, 1)], 2)
    finish(machine, table)
    assert (dictionary.refs[x], dictionary.refs[y]) == (3, 2)
    upsert(machine, table, [(x, x, -2), (x, y, 5)], 2)
    finish(machine, table)
    assert (dictionary.refs[x], dictionary.refs[y]) == (1, 2)
    if release:
        table.release()
    else:
        upsert(machine, table, [(x, y, -6), (at.NULL_CODE, y, -1)], 2)
        finish(machine, table)
    dictionary.sweep()
    assert dictionary.live() == 0


def test_a_drained_table_gives_its_memory_back():
    machine, table = Machine(), Table(1, 1, indexes=[(0,), ()], name="t")
    batch = [(i, 1) for i in range(50_000)]
    upsert(machine, table, batch, 1)
    finish(machine, table)
    full = table.bytes()
    upsert(machine, table, batch, 1, -1)
    assert finish(machine, table) & at.SHRINK
    table.shrink()
    table._check()
    assert table.bytes() < full / 30
    assert int(table.header[at.CAPACITY]) < 100


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked for huge pages")
def test_large_arrays_ask_for_huge_pages():
    table = Table(2, 1)
    table.reserve(1_200_000)
    for place in (at.ROWS, at.SLOTS):
        assert "hg" in flags_of_mapping(int(table.header[place]) + (1 << 21))


def test_rows_survive_growth_to_huge_pages():
    """Rows of 96 bytes and more: the array is past 16 MB when it grows last."""
    table, machine = Table(10, 1), Machine()
    for first in range(0, 200_000, 50_000):
        upsert(machine, table, [(i, -i, *range(8), 1) for i in range(first, first + 50_000)], 10)
    assert list(table.rows()) == [(i, -i, *range(8)) for i in range(200_000)]
    assert int(table.header[at.CAPACITY] * table.header[at.WIDTH]) * 8 > 1 << 24


def flags_of_mapping(address: int) -> list[str]:
    """What the system keeps of the mapping that an address lies in."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            first, end = (int(word, 16) for word in head.split("-"))
            inside = first <= address < end
        elif inside and head == "VmFlags:":
            return line.split()[1:]
    raise AssertionError("not mapped")

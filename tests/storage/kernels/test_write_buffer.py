"""Changes that wait in a write buffer: the table and its buffer together are the table without one."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables.hashing import hash_words
from sqlfront.storage.kernels.tables.write_buffer import PARTS, merge_part, new_buffer
from sqlfront.storage.stores.buffered import buffer_changes, merge_buffer, waiting_rows
from sqlfront.storage.stores.spill import Spill
from sqlfront.storage.stores.table import Table
from tests.storage.kernels.test_table import finish

KEYS = 400


def equal_hashes(count: int) -> list[tuple[int, int]]:
    """Pairs of keys that share a hash."""
    met, pairs = dict[int, int](), list[tuple[int, int]]()
    words = np.zeros(2, np.int64)
    address = words.ctypes.data
    for key in range(1000, 400_000):
        words[0] = key
        h = hash_words(address, 1)
        if h in met:
            pairs.append((met[h], key))
            if len(pairs) == count:
                return pairs
        met[h] = key
    raise AssertionError("few keys share a hash")


class Buffered:
    """A spilled table of sums with a write buffer, and what it should hold."""

    def __init__(self, folder: Path, limbs: int) -> None:
        self.machine, self.table = Machine(), Table(1, 2, limbs)
        self.spill, self.expected = Spill(str(folder)), Counter[int]()
        self.spill.words[at.SPILL_LEAST] = 0
        self.spill.keep(self.table)
        self.change([(key, 1) for key in range(KEYS)])
        buffer_changes(self.table, True)  # It is looked through, as it has rows.
        new_buffer(self.table.address)  # As when rows are missing in memory.

    def change(self, rows: list[tuple[int, int]]) -> None:
        """One epoch: each row's count and, if there is one, a sum of ten times as much."""
        self.add(rows)
        finish(self.machine, self.table)

    def add(self, rows: list[tuple[int, int]]) -> None:
        program = Assembler()
        program.lift(3, self.table.limbs, -1, [], [0], [(at.FACTOR_CODE, 1, 1)])
        program.path(0)
        program.upsert(self.table)
        program.path_end()
        words = np.array([(key, 10, count) for key, count in rows], np.int64).reshape(-1, 3)
        self.machine.run(program.program(), words, len(rows), 1)
        for key, count in rows:
            self.expected[key] += count

    def check(self) -> None:
        """Merge, and compare."""
        merge_buffer(self.table)
        assert waiting_rows(self.table) == 0
        expected = {(key,): (count, 10 * count) for key, count in self.expected.items() if count}
        assert self.table.rows() == expected and self.table.live == len(expected)


@pytest.fixture(scope="module")
def pairs() -> list[tuple[int, int]]:
    return equal_hashes(20)


@pytest.mark.parametrize("limbs", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_random_epochs(tmp_path: Path, pairs: list[tuple[int, int]], seed: int, limbs: int) -> None:
    """Epochs of several batches; rows come and go, and the buffer is merged in between, in part or whole. A key that
    the table has not may have the hash of one that it has: it waits, too."""
    rng, one, waited = random.Random(seed), Buffered(tmp_path, limbs), 0
    keys = [*range(KEYS + 20), *(key for pair in pairs[:5] for key in pair)]
    one.change([(first, 1) for first, _ in pairs[:5]])
    for _ in range(150):
        for _ in range(rng.randrange(1, 4)):
            batch = []
            for _ in range(rng.randrange(12)):
                key = rng.choice(keys)
                gone = -one.expected[key] - sum(count for other, count in batch if other == key)
                batch.append((key, rng.choice([1, 2, gone] if gone else [1, 2])))
            one.add(batch)
        finish(one.machine, one.table)
        waited += waiting_rows(one.table)
        if rng.random() < 0.1:
            merge_part(one.table.address, one.machine._own.address)
        if rng.random() < 0.1:
            one.table.compact()
        if rng.random() < 0.1:
            one.check()
    one.check()
    assert waited > 150


def test_a_table_grows_while_it_is_merged(tmp_path: Path, pairs: list[tuple[int, int]]) -> None:
    """By keys that waited, as each has the hash of another one."""
    one = Buffered(tmp_path, 1)
    one.change([(first, 1) for first, _ in pairs])
    one.change([(key, 1) for key in range(KEYS)] + [(second, 1) for _, second in pairs])
    assert waiting_rows(one.table) > len(pairs)
    live = one.table.live
    one.check()
    assert one.table.live > live


def test_no_change_waits_where_a_sum_might_not_fit(tmp_path: Path) -> None:
    one = Buffered(tmp_path, 1)
    one.change([(key, 2**40) for key in range(100)])
    assert waiting_rows(one.table) > 10
    one.change([(key, 2**58) for key in range(100, 104)])
    assert (waiting_rows(one.table), one.table.header[at.BUFFERED]) == (0, 0)
    one.change([(key, 1) for key in range(200, 300)])
    one.check()


def test_few_rows_are_merged_as_they_come(tmp_path: Path) -> None:
    one = Buffered(tmp_path, 1)
    one.change([(300, 1)])
    assert waiting_rows(one.table) == 1
    one.check()
    one.change([(key, 1) for key in range(20)])
    assert waiting_rows(one.table) == 20
    one.check()


def test_a_row_that_has_changed_again_stays_for_a_turn(tmp_path: Path) -> None:
    """Wherever it lies in the table; the others leave part by part."""
    one = Buffered(tmp_path, 1)
    one.change([(key, 1) for key in range(0, KEYS, 8)])
    for _ in range(2):
        one.change([(104, 1), (296, 1)])
    waiting = [50, *(turn(one) for _ in range(3))]
    assert waiting == [50, 2, 0, 0]
    one.check()


def turn(one: Buffered) -> int:
    """How many rows wait after each part of the table has been merged."""
    for _ in range(PARTS):
        merge_part(one.table.address, one.machine._own.address)
    return waiting_rows(one.table)

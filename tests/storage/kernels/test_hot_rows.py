"""Rows that change often are gathered at the front of a table, and the table stays what it was."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from sqlfront.maintenance.program.machine import Machine
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables.hashing import hash_words
from sqlfront.storage.kernels.tables.hot_rows import gather_hot
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.words import words_at
from tests.storage.kernels.test_table import finish, upsert


def gather(table: Table, keys: list[tuple[int, ...]]) -> None:
    words = np.array(keys, np.int64)
    hashes = np.array([hash_words(row.ctypes.data, len(row)) for row in words], np.int64)
    gather_hot(table.address, hashes.ctypes.data, len(hashes))


def first_keys(table: Table, count: int) -> list[int]:
    rows: list[int] = words_at(table.header[at.ROWS], count * table.width).reshape(count, table.width)[:, 0].tolist()
    return rows


@pytest.mark.parametrize("limbs", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_random_batches(seed: int, limbs: int) -> None:
    """Rows are exchanged in the middle of epochs, too, while some of them have a count of 0 and are not yet free."""
    rng, counts = random.Random(seed), Counter[tuple[int, int]]()
    machine, table = Machine(), Table(2, 1, limbs)
    for _ in range(120):
        for _ in range(rng.randrange(1, 4)):
            batch = Counter[tuple[int, int]]()
            for _ in range(rng.randrange(40)):
                key = rng.randrange(30), rng.randrange(4)
                weight = rng.choice([1, 2, -counts[key] - batch[key]])
                batch[key] += weight
            upsert(machine, table, [(*key, weight) for key, weight in batch.items()], 2)
            counts.update(batch)
            gather(table, [(rng.randrange(35), rng.randrange(4)) for _ in range(50)])
        finish(machine, table)
        if rng.random() < 0.2:
            table.compact()
        expected = {key: (count,) for key, count in counts.items() if count}
        assert table.rows() == expected and table.live == len(expected)
        assert all(table.count_of(key) == count for key, count in counts.items())
    assert table.header[at.HOT_WORDS] > 0


def test_a_tenth_of_the_rows_is_gathered() -> None:
    rng, machine, table = random.Random(1), Machine(), Table(1, 1)
    upsert(machine, table, [(key, 1) for key in range(2000)], 1)
    finish(machine, table)
    often = set(rng.sample(range(2000), 200))
    for _ in range(60):
        gather(table, [(key,) for key in (*rng.choices(list(often), k=90), *rng.choices(range(2000), k=10))])
    assert len(often.intersection(first_keys(table, 500))) > 170
    assert table.rows() == {(key,): (1,) for key in range(2000)}


def test_rows_that_others_name_by_number_stay() -> None:
    machine, table, plain = Machine(), Table(2, 1, 1, [(0,)]), Table(2, 1)
    tables = (table, table.groups[0], plain)
    for one in (table, plain):
        upsert(machine, one, [(key, key % 7, 1) for key in range(400)], 2)
        finish(machine, one)
    before = [first_keys(one, 400) for one in tables]
    for _ in range(20):
        for one in tables:
            gather(one, [(key, key % 7)[: one.keys] for key in range(390, 400)])
    assert [first_keys(one, 400) == keys for one, keys in zip(tables, before, strict=True)] == [True, True, False]


def test_nothing_behind_the_bits_is_cleared() -> None:
    """Of a table that has a row for each bit."""
    machine, table = Machine(), Table(1, 1)
    upsert(machine, table, [(key, 1) for key in range(64)], 1)
    gather(table, [(1,)])
    words = int(table.header[at.HOT_WORDS])
    upsert(machine, table, [(key, 1) for key in range(64, 64 * words)], 1)
    behind = words_at(int(table.header[at.HOT_BITS]) + 16 * words, 1)
    before = int(behind[0])
    gather(table, [(key,) for key in range(64 * words)])
    after, behind[0] = int(behind[0]), before
    assert (after, table.header[at.HOT_WORDS]) == (before, words)


def test_the_bits_are_counted_and_given_back() -> None:
    machine, table = Machine(), Table(1, 1)
    upsert(machine, table, [(key, 1) for key in range(20_000)], 1)
    before = table.bytes()
    gather(table, [(1,)])
    assert table.bytes() == before + 16 * (20_000 // 32 + 1)
    upsert(machine, table, [(key, -1) for key in range(19_000)], 1)
    finish(machine, table)
    table.compact()
    assert table.header[at.HOT_WORDS] == 0
    gather(table, [(19_500,)])
    table.reset()
    assert table.header[at.HOT_WORDS] == 0

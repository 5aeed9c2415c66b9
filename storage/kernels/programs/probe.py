"""The steps of a path that look up one row, test what is known, or keep a group's best."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    HASHES,
    KEYS,
    LIMBS,
    MASK,
    MATCHES,
    ORDER_COUNT,
    ORDER_ENTRY,
    ROWS,
    SLOTS,
    STEPS,
    WIDTH,
)
from sqlfront.storage.kernels.memory import load, prefetch, store
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.tables.delta import gather_keys, reserve_scratch
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_words
from sqlfront.storage.kernels.tables.read_ahead import read_ahead
from sqlfront.storage.kernels.tables.row_order import compare_rows

_AHEAD = 12


@kernel("int64(int64,int64,int64,int64,int64)")
def step_probe(at, scratch, delta, width, rows):
    """[PROBE, length, table, emit place, missing, absent, n, places...]: match each delta row with at most one row.

    Where no row is found that counts, the row `missing` (0: none) takes its place; `absent`: only there."""
    table = load(at, 2)
    missing = load(at, 4)
    absent = load(at, 5)
    reserve_scratch(scratch, rows, rows)
    hashes = load(scratch, HASHES)
    matches = load(scratch, MATCHES)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    count = load(at, 6)
    for i in range(rows):
        key = gather_keys(at, 6, delta + i * width * 8, scratch)
        h = hash_words(key, count)
        store(hashes, i, h)
        prefetch(slots + (h & mask) * 8)
    read_ahead(table, hashes, rows)
    table_rows = load(table, ROWS)
    table_width = load(table, WIDTH)
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    found = 0
    for i in range(rows):
        # The slots are near by now: they tell the rows of later look-ups.
        if i + _AHEAD < rows:
            slot = load(slots, load(hashes, i + _AHEAD) & mask)
            if slot != 0:
                prefetch(table_rows + ((slot & 0xFFFFFFFF) - 1) * table_width * 8)
        key = delta + i * width * 8
        row = find(table, scratch, load(hashes, i), key, at, 7)
        partner = table_rows + row * table_width * 8 if row >= 0 else 0
        if missing != 0:
            if partner == 0 or sign_of(partner, keys, limbs) == 0:
                partner = missing
            elif absent != 0:
                partner = 0
        if partner != 0:
            store(matches, 2 * found, key)
            store(matches, 2 * found + 1, partner)
            found += 1
    store(scratch, STEPS, load(scratch, STEPS) + found)
    return found


@kernel("boolean(int64,int64)")
def passes(at, row):
    """Whether a delta row passes all tests of a PROJECT."""
    test = at + 5 * 8
    for _ in range(load(at, 2)):
        order = test + 3 * 8
        outcome = compare_rows(order, row + load(test, 1) * 8, row + load(test, 2) * 8)
        if (load(test, 0) >> (outcome + 1)) & 1 == 0:
            return False
        test = order + (ORDER_ENTRY + 3 * load(order, ORDER_COUNT)) * 8
    return True


@kernel("int64(int64,int64,int64,int64,int64)")
def step_project(at, scratch, delta, width, rows):
    """[PROJECT, length, tests, emit place, beside, tests: passing outcomes, left place, right place, an order list...]:
    match each delta row that passes the tests with the row `beside` (0: with itself), to drop, add or reorder words."""
    reserve_scratch(scratch, 0, rows)
    matches = load(scratch, MATCHES)
    beside = load(at, 4)
    found = 0
    for i in range(rows):
        row = delta + i * width * 8
        if passes(at, row):
            store(matches, 2 * found, row)
            store(matches, 2 * found + 1, row if beside == 0 else beside)
            found += 1
    if load(at, 2) > 0:
        store(scratch, STEPS, load(scratch, STEPS) + rows)
    return found

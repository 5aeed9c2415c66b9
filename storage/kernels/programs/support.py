"""Support instead of sums: steps of a path that tell only whether a row is there, for views that are sets."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, ROWS, WIDTH
from sqlfront.storage.kernels.memory import load, store
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.tables.delta import gather_keys
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_words


@kernel("int64(int64,int64,int64,int64,int64,int64,int64)")
def count_is(sign, base, place, limbs, other, other_place, other_limbs):
    """1 if the count at base[place] equals `sign` times the other one; values are sign-extended to the wider."""
    a_top = -1 if load(base, place + limbs - 1) < 0 else 0
    b_top = -1 if load(other, other_place + other_limbs - 1) < 0 else 0
    carry = 1 if sign < 0 else 0
    for i in range(max(limbs, other_limbs)):
        a = load(base, place + i) if i < limbs else a_top
        b = load(other, other_place + i) if i < other_limbs else b_top
        if sign < 0:
            b = ~b + carry
            if b != 0:
                carry = 0
        if a != b:
            return 0
    return 1


@kernel("void(int64,int64,int64,int64,int64)")
def put_count(target, row, keys, limbs, count):
    """A row of the same key with this count, which is 1 or -1."""
    for j in range(keys):
        store(target, j, load(row, j))
    store(target, keys, count)
    for j in range(1, limbs):
        store(target, keys + j, -1 if count < 0 else 0)


@kernel("int64(int64,int64,int64,int64,int64)")
def step_transition(at, scratch, delta, width, rows):
    """[TRANSITION, length, table, is new, keys, limbs, n, places...]: keep the delta's rows by which a row of the table
    appears or disappears, with count 1 or -1. The table has the counts after the delta if `is new`, else before it.

    The delta has one row per key, and one value, its count.
    """
    table = load(at, 2)
    is_new = load(at, 3)
    keys = load(at, 4)
    limbs = load(at, 5)
    table_keys = load(table, KEYS)
    table_limbs = load(table, LIMBS)
    kept = 0
    for i in range(rows):
        row = delta + i * width * 8
        key = gather_keys(at, 6, row, scratch)
        found = find(table, scratch, hash_words(key, load(at, 6)), row, at, 7)
        present = 0
        other = 0
        if found >= 0:
            address = load(table, ROWS) + found * load(table, WIDTH) * 8
            present = 1 if sign_of(address, table_keys, table_limbs) != 0 else 0
            other = 1 - count_is(1 if is_new else -1, address, table_keys, table_limbs, row, keys, limbs)
        elif is_new == 0:
            other = 1
        change = present - other if is_new else other - present
        if change != 0:
            put_count(delta + kept * width * 8, row, keys, limbs, change)
            kept += 1
    return kept


@kernel("int64(int64,int64,int64,int64)")
def step_sign(at, delta, width, rows):
    """[SIGN, length, keys, limbs]: the sign of each row's count instead of the count; rows of 0 go."""
    keys = load(at, 2)
    limbs = load(at, 3)
    kept = 0
    for i in range(rows):
        row = delta + i * width * 8
        sign = sign_of(row, keys, limbs)
        if sign != 0:
            put_count(delta + kept * width * 8, row, keys, limbs, sign)
            kept += 1
    return kept

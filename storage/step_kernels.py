"""The steps of a path that look up one row, test what is known, or keep a group's best."""

from __future__ import annotations

from storage.delta_kernels import buffer, gather_keys, reserve_scratch
from storage.hash_kernels import hash_words
from storage.jit import kernel
from storage.layout import (
    HASHES,
    KEYS,
    LIMBS,
    LINKS,
    MASK,
    MATCHES,
    ORDER_COUNT,
    ORDER_ENTRY,
    ROWS,
    SLOTS,
    STEPS,
    TAIL,
    WIDTH,
)
from storage.limb_kernels import sign_of
from storage.memory import load, load32, prefetch, store
from storage.order_kernels import compare_rows
from storage.table_kernels import find

_AHEAD = 12


@kernel("int64(int64,int64,int64,int64,int64)")
def step_probe(at, scratch, delta, width, rows):
    """[PROBE, length, table, emit place, n, places...]: match each delta row with at most one row."""
    table = load(at, 2)
    reserve_scratch(scratch, rows, rows)
    hashes = load(scratch, HASHES)
    matches = load(scratch, MATCHES)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    count = load(at, 4)
    for i in range(rows):
        key = gather_keys(at, 4, delta + i * width * 8, scratch)
        h = hash_words(key, count)
        store(hashes, i, h)
        prefetch(slots + (h & mask) * 8)
    table_rows = load(table, ROWS)
    table_width = load(table, WIDTH)
    found = 0
    for i in range(rows):
        if i + _AHEAD < rows:
            slot = load(slots, load(hashes, i + _AHEAD) & mask)
            if slot != 0:
                prefetch(table_rows + ((slot & 0xFFFFFFFF) - 1) * table_width * 8)
        key = delta + i * width * 8
        row = find(table, scratch, load(hashes, i), key, at, 5)
        if row >= 0:
            store(matches, 2 * found, key)
            store(matches, 2 * found + 1, table_rows + row * table_width * 8)
            found += 1
    store(scratch, STEPS, load(scratch, STEPS) + found)
    return found


@kernel("boolean(int64,int64)")
def passes(at, row):
    """Whether a delta row passes all tests of a PROJECT."""
    test = at + 4 * 8
    for _ in range(load(at, 2)):
        order = test + 3 * 8
        outcome = compare_rows(order, row + load(test, 1) * 8, row + load(test, 2) * 8)
        if (load(test, 0) >> (outcome + 1)) & 1 == 0:
            return False
        test = order + (ORDER_ENTRY + 3 * load(order, ORDER_COUNT)) * 8
    return True


@kernel("int64(int64,int64,int64,int64,int64)")
def step_project(at, scratch, delta, width, rows):
    """[PROJECT, length, tests, emit place, tests: passing outcomes, left place, right place, an order list...]: match
    each delta row that passes the tests with itself, to drop or reorder key words."""
    reserve_scratch(scratch, 0, rows)
    matches = load(scratch, MATCHES)
    found = 0
    for i in range(rows):
        row = delta + i * width * 8
        if passes(at, row):
            store(matches, 2 * found, row)
            store(matches, 2 * found + 1, row)
            found += 1
    if load(at, 2) > 0:
        store(scratch, STEPS, load(scratch, STEPS) + rows)
    return found


@kernel("int64(int64,int64,int64,int64,int64)")
def step_best(at, scratch, delta, width, rows):
    """[BEST, length, group table, out buffer, member table, index, value place, n, places...].

    Keep the least value of each touched group in its tail; put out (group key, old best) with count -1 and
    (group key, new best) with count +1 where it changed. O(group) after the deletion of a best member.
    """
    group = load(at, 2)
    table = load(at, 4)
    place = load(at, 6)
    count = load(at, 7)
    out = buffer(scratch, load(at, 3), 2 * rows * (count + 2))
    next_place = 2 * (load(table, LINKS) + 2 * load(at, 5))
    tail = load(group, TAIL)
    made = 0
    hops = 0
    for i in range(rows):
        row = delta + i * width * 8
        key = gather_keys(at, 7, row, scratch)
        group_row = find(group, scratch, hash_words(key, count), row, at, 8)
        address = load(group, ROWS) + group_row * load(group, WIDTH) * 8
        had = load(address, tail + 1)
        old = load(address, tail + 2)
        has = 0
        new = 0
        member = load32(address, 2 * tail)
        while member != 0:
            hops += 1
            member_address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            if sign_of(member_address, load(table, KEYS), load(table, LIMBS)) > 0:
                value = load(member_address, place)
                if has == 0 or value < new:
                    new = value
                has = 1
            member = load32(member_address, next_place)
        if had == has and (has == 0 or old == new):
            continue
        for change in range(2):
            if (had if change == 0 else has) == 1:
                target = out + made * (count + 2) * 8
                for j in range(count):
                    store(target, j, load(row, load(at, 8 + j)))
                store(target, count, old if change == 0 else new)
                store(target, count + 1, -1 if change == 0 else 1)
                made += 1
        store(address, tail + 1, has)
        store(address, tail + 2, new)
    store(scratch, STEPS, load(scratch, STEPS) + hops + rows)
    return made

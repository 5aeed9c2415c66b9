"""Heavy and light values: the rows of a delta with a heavy value take other ways than those without.

A table of heavy values is keyed by a column's words. A value's degree is the number of rows that its store has with
it, the size of its group. Values are promoted and demoted between epochs; what is here only routes, and notices.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    BOUND_LIMIT,
    BOUND_LOWER,
    BOUND_SMALLEST,
    BOUND_UPPER,
    BUFFERS,
    DIRTY_USED,
    FLAGS,
    HEAVY,
    KEYS,
    LARGEST,
    LIMBS,
    LIVE,
    REBALANCE,
    ROWS,
    STATUSES,
    TAIL,
    USED,
    WIDTH,
)
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.tables.delta import buffer
from sqlfront.storage.kernels.tables.hash_table import clear_rows, find, new_row, reserve
from sqlfront.storage.kernels.tables.hashing import hash_places, hash_words


@kernel("int64(int64,int64,int64)")
def is_heavy(at, scratch, row):
    """1 if the words of a row are in a table of heavy values: [table, 0, n, places...]."""
    table = load(at, 0)
    if load(table, LIVE) == 0:
        return 0
    return 1 if find(table, scratch, hash_places(row, at, 3, load(at, 2)), row, at, 3) >= 0 else 0


@kernel("void(int64,int64,int64,int64,int64)")
def step_status(at, scratch, delta, width, rows):
    """[STATUS, length, conditions, (heavy table, 0, n, places...)...]: find which words of each row of a leaf's delta
    are heavy; ROUTE and SKIP_LIGHT go by it. Bit i of a row's status is that of condition i."""
    statuses = buffer(scratch, STATUSES, rows)
    any_heavy = 0
    conditions = load(at, 2)
    for i in range(rows):
        store(statuses, i, 0)
    condition = at + 3 * 8
    for bit in range(conditions):
        if load(load(condition, 0), LIVE) > 0:
            for i in range(rows):
                heavy = is_heavy(condition, scratch, delta + i * width * 8)
                store(statuses, i, load(statuses, i) | (heavy << bit))
                any_heavy |= heavy
        condition += (3 + load(condition, 2)) * 8
    store(scratch, HEAVY, any_heavy)


@kernel("boolean(int64,int64,int64)")
def alone(at, delta, rows):
    """[SKIP_ALONE, length, words to skip, terms, (n, (place, place)...)...]: whether the delta is of one row, and in
    each term two of its words differ that have to be equal."""
    if rows != 1:
        return False
    term = at + 4 * 8
    for _ in range(load(at, 3)):
        pairs = load(term, 0)
        equal = True
        for i in range(pairs):
            if load(delta, load(term, 1 + 2 * i)) != load(delta, load(term, 2 + 2 * i)):
                equal = False
        if equal:
            return False
        term += (1 + 2 * pairs) * 8
    return True


@kernel("int64(int64,int64,int64,int64,int64)")
def step_route(at, scratch, delta, width, rows):
    """[ROUTE, length, out buffer, keep, mask, value]: copy the rows of a leaf's delta whose status is `value` where
    `mask` has ones (keep = 1), or those whose is not (keep = 0)."""
    out = buffer(scratch, load(at, 2), max(1, width * rows))
    statuses = load(scratch, BUFFERS + 3 * STATUSES)
    keep = load(at, 3)
    mask = load(at, 4)
    value = load(at, 5)
    kept = 0
    for i in range(rows):
        holds = 1 if load(statuses, i) & mask == value else 0
        if holds == keep:
            for j in range(width):
                store(out, kept * width + j, load(delta, i * width + j))
            kept += 1
    return kept


@kernel("int64(int64,int64)")
def group_size(group, row):
    """The number of members of a group by its row's number, 0 for -1."""
    if row < 0:
        return 0
    return load32(load(group, ROWS) + (row * load(group, WIDTH) + load(group, TAIL)) * 8, 1)


@kernel("void(int64,int64,int64,int64,int64)")
def step_note(at, scratch, delta, width, rows):
    """[NOTE, length, store, group table, pending, bounds, heavy table, 0, n, places...]: enter in `pending` those
    values of the delta that may have to become heavy, or light, once the store's empty rows are swept."""
    table = load(at, 2)
    group = load(at, 3)
    pending = load(at, 4)
    bounds = load(at, 5)
    heavy = at + 6 * 8
    count = load(at, 8)
    # Rows whose count became 0 are in their groups until they are swept: a group may be smaller by so many.
    lower = load(bounds, BOUND_LOWER) + load(table, DIRTY_USED)
    upper = load(bounds, BOUND_UPPER)
    largest = load(scratch, LARGEST)  # Of the groups that this run has entered rows in.
    reserve(pending, rows)
    for i in range(rows):
        row = delta + i * width * 8
        # Only what is inserted raises a degree, and only a heavy value's fall matters.
        inserted = sign_of(row, load(table, KEYS), load(table, LIMBS)) > 0
        if (inserted and largest < upper) or (not inserted and is_heavy(heavy, scratch, row) == 0):
            continue
        h = hash_places(row, at, 9, count)
        size = group_size(group, find(group, scratch, h, row, at, 9))
        if inserted:
            crosses = size >= upper and is_heavy(heavy, scratch, row) == 0
        else:
            crosses = size < lower
        if crosses and find(pending, scratch, h, row, at, 9) < 0:
            entered = load(pending, ROWS) + new_row(pending, h) * load(pending, WIDTH) * 8
            for j in range(count):
                store(entered, j, load(row, load(at, 9 + j)))
            store(entered, count, 1)


@kernel("void(int64,int64)")
def step_settle(at, scratch):
    """[SETTLE, length, owner, group table, heavy table, pending, bounds]: tell if a pending value really has to change;
    else forget them. The store has been swept."""
    group = load(at, 3)
    heavy = load(at, 4)
    pending = load(at, 5)
    bounds = load(at, 6)
    if load(pending, LIVE) == 0:
        return
    crossing = 0
    for i in range(load(pending, USED)):
        row = load(pending, ROWS) + i * load(pending, WIDTH) * 8
        h = hash_words(row, load(pending, KEYS))
        size = group_size(group, find(group, scratch, h, row, 0, 0))
        if find(heavy, scratch, h, row, 0, 0) >= 0:
            if size < load(bounds, BOUND_LOWER):
                crossing = 1
        elif size >= load(bounds, BOUND_UPPER):
            crossing = 1
    if crossing == 1:
        store(scratch, FLAGS, load(scratch, FLAGS) | REBALANCE)
    else:
        clear_rows(pending)


@kernel("void(int64,int64)")
def step_balance(at, scratch):
    """[BALANCE, length, bounds, copies, n, stores...]: tell if the number of the stores' rows, each counted `copies`
    times, has left the interval for which the bounds on degrees were made."""
    bounds = load(at, 2)
    size = 0
    for i in range(load(at, 4)):
        size += load(load(at, 5 + i), LIVE)
    size *= load(at, 3)
    if size < load(bounds, BOUND_SMALLEST) or size >= load(bounds, BOUND_LIMIT):
        store(scratch, FLAGS, load(scratch, FLAGS) | REBALANCE)

"""Rows that are appended to a table without a look-up: no slot leads to them, and no two of a run are equal.

Such a table has no index, and counts no references. A row costs one copy instead of a hash, a search and a copy.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    LIVE,
    MOST_RUNS,
    ROWS,
    RUN_COUNT,
    RUN_SCANNED,
    RUN_STARTS,
    RUN_STEP,
    SCANNED,
    STEPS,
    USED,
    WIDTH,
)
from sqlfront.storage.kernels.memory import load, memcpy, store
from sqlfront.storage.kernels.tables.hash_table import reserve_rows

_COLUMN_BLOCK = 32


@kernel("int64(int64,int64)")
def room_behind(table, rows):
    """The address behind a table's rows, where there is room for so many more."""
    reserve_rows(table, rows)
    return load(table, ROWS) + load(table, USED) * load(table, WIDTH) * 8


@kernel("void(int64,int64,int64,int64)")
def step_append(at, scratch, delta, rows):
    """[APPEND, length, table, runs]: add the delta's rows, which are no row's of the same run, to a table without
    indexes that finds none by its key. They may lie behind its rows already."""
    table = load(at, 2)
    runs = load(at, 3)
    used = load(table, USED)
    place = room_behind(table, rows)
    if load(runs, RUN_STEP) != at or load(runs, RUN_SCANNED) != load(scratch, SCANNED):
        count = load(runs, RUN_COUNT)
        if count < MOST_RUNS:
            store(runs, RUN_STARTS + count, used)
        store(runs, RUN_COUNT, count + 1)
        store(runs, RUN_STEP, at)
        store(runs, RUN_SCANNED, load(scratch, SCANNED))
    if delta != place:
        memcpy(place, delta, rows * load(table, WIDTH) * 8)
    store(table, USED, used + rows)
    store(table, LIVE, used + rows)
    store(scratch, STEPS, load(scratch, STEPS) + rows)


@kernel("void(int64,int64,int64,int64,int64)")
def copy_columns(table, wanted, extents, out, stride):
    """Copy words of all rows to `out`, each to a column of its own. The table has rows, and has freed none.

    `wanted`: their number, then for each its place in a row, and the number of its column. A column is `stride` words.
    `extents` gets the least word of each, and then the greatest of the last one.
    """
    used = load(table, USED)
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    last = load(wanted, 0) - 1
    for i in range(last + 1):
        store(extents, i, load(rows, load(wanted, 1 + 2 * i)))
    greatest = load(extents, last)
    # A block of rows stays in the cache while its columns are written, line by line.
    for first in range(0, used, _COLUMN_BLOCK):
        block = rows + first * width * 8
        count = min(_COLUMN_BLOCK, used - first)
        for i in range(last):
            source = block + load(wanted, 1 + 2 * i) * 8
            target = out + (load(wanted, 2 + 2 * i) * stride + first) * 8
            least = load(extents, i)
            for row in range(count):
                word = load(source, row * width)
                store(target, row, word)
                least = min(least, word)
            store(extents, i, least)
        source = block + load(wanted, 1 + 2 * last) * 8
        target = out + (load(wanted, 2 + 2 * last) * stride + first) * 8
        least = load(extents, last)
        for row in range(count):
            word = load(source, row * width)
            store(target, row, word)
            least = min(least, word)
            greatest = max(greatest, word)
        store(extents, last, least)
    store(extents, last + 1, greatest)

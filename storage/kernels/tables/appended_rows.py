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


@kernel("void(int64,int64,int64,int64)")
def step_append(at, scratch, delta, rows):
    """[APPEND, length, table, runs]: add the delta's rows, which are no row's of the same run, to a table without
    indexes that finds none by its key."""
    table = load(at, 2)
    runs = load(at, 3)
    used = load(table, USED)
    width = load(table, WIDTH) * 8
    if load(runs, RUN_STEP) != at or load(runs, RUN_SCANNED) != load(scratch, SCANNED):
        count = load(runs, RUN_COUNT)
        if count < MOST_RUNS:
            store(runs, RUN_STARTS + count, used)
        store(runs, RUN_COUNT, count + 1)
        store(runs, RUN_STEP, at)
        store(runs, RUN_SCANNED, load(scratch, SCANNED))
    reserve_rows(table, rows)
    memcpy(load(table, ROWS) + used * width, delta, rows * width)
    store(table, USED, used + rows)
    store(table, LIVE, used + rows)
    store(scratch, STEPS, load(scratch, STEPS) + rows)


@kernel("void(int64,int64)")
def copy_columns(table, out):
    """Copy all rows to `out`, word after word of a row: each is a column. The table has freed no row."""
    used = load(table, USED)
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    # A block of rows stays in the cache while its columns are written, line by line.
    for first in range(0, used, _COLUMN_BLOCK):
        block = rows + first * width * 8
        count = min(_COLUMN_BLOCK, used - first)
        for place in range(width):
            target = out + (place * used + first) * 8
            for row in range(count):
                store(target, row, load(block, row * width + place))

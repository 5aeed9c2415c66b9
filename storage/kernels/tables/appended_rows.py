"""Rows that a table has, and its slots have not: distinct rows are appended without a look-up, and entered later.

APPENDED counts these rows. They are the last, and no two rows of the table have one key. The table has no index, and
counts no references. A row costs one copy instead of a hash, a search and a copy.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import APPENDED, CAPACITY, KEYS, LIVE, MASK, ROWS, SLOTS, STEPS, USED, WIDTH
from sqlfront.storage.kernels.memory import load, memcpy, store
from sqlfront.storage.kernels.tables.delta import step_upsert
from sqlfront.storage.kernels.tables.hash_table import reserve
from sqlfront.storage.kernels.tables.hashing import hash_words
from sqlfront.storage.kernels.tables.huge_pages import use_huge_pages
from sqlfront.storage.kernels.tables.mapped_memory import resize_rows

_COLUMN_BLOCK = 32


@kernel("void(int64,int64,int64,int64)")
def step_append(at, scratch, delta, rows):
    """[APPEND, length, table]: add a delta. If the slots are empty, no row of the delta has the key of another row of
    the path: the rows are appended. Else as UPSERT."""
    table = load(at, 2)
    if load(table, LIVE) > load(table, APPENDED):
        step_upsert(at, scratch, delta, rows)
        return
    used = load(table, USED)
    width = load(table, WIDTH) * 8
    if used + rows > load(table, CAPACITY):
        capacity = max(used + rows, used + used // 2)
        resize_rows(table, capacity)
        use_huge_pages(load(table, ROWS), capacity * width)
    memcpy(load(table, ROWS) + used * width, delta, rows * width)
    store(table, USED, used + rows)
    store(table, LIVE, used + rows)
    store(table, APPENDED, used + rows)
    store(scratch, STEPS, load(scratch, STEPS) + rows)


@kernel("void(int64)")
def enter_appended(table):
    """[ENTER, length, table]: enter the appended rows in the slots. O(appended rows)."""
    appended = load(table, APPENDED)
    if appended == 0:
        return
    reserve(table, 0)
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    used = load(table, USED)
    for row in range(used - appended, used):
        h = hash_words(rows + row * width, keys)
        i = h & mask
        while load(slots, i) != 0:
            i = (i + 1) & mask
        store(slots, i, (h << 32) | (row + 1))
    store(table, APPENDED, 0)


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

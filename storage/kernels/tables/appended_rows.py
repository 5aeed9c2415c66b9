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
from sqlfront.storage.kernels.memory import load, memcpy, store, store32
from sqlfront.storage.kernels.tables.hash_table import reserve_rows

_COLUMN_BLOCK = 32
# How a column has its words: as they are; two words, the high one first in a row, as 128 bits; one as 128 bits with its
# sign; the code of a DOUBLE as the bits; the low 32 bits; the number of a text, or NULL_CODE.
WORD, WIDE, SIGNED, FLIPPED, NARROW, NAMED = range(6)


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


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def copy_word(source, width, count, target, layout, least):
    """Copy a word of `count` rows to a column in a layout; the least word of them and `least`."""
    for row in range(count):
        word = load(source, row * width)
        least = min(least, word)
        if layout == WIDE:
            store(target, 2 * row, load(source, row * width + 1))
            store(target, 2 * row + 1, word)
        elif layout == SIGNED:
            store(target, 2 * row, word)
            store(target, 2 * row + 1, word >> 63)
        elif layout == FLIPPED:
            store(target, row, word ^ ((word >> 63) & (2**63 - 1)))
        else:
            store32(target, row, word)
    return least


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def copy_words(rows, width, used, wanted, extents, out, stride):
    """Copy words of so many rows of `width` words, at least one, to `out`, each to a column of its own.

    `wanted`: their number, then for each its place in a row, where the column begins, and its layout. A column begins
    `stride` words behind `out`, or as many times half of that. `extents` gets the least word of each, 0 for numbers of
    texts, and then the greatest of the last one.
    """
    last = load(wanted, 0) - 1
    for i in range(last + 1):
        store(extents, i, load(rows, load(wanted, 1 + 3 * i)))
    greatest = load(extents, last)
    # A block of rows stays in the cache while its columns are written, line by line.
    for first in range(0, used, _COLUMN_BLOCK):
        block = rows + first * width * 8
        count = min(_COLUMN_BLOCK, used - first)
        for i in range(last):
            source = block + load(wanted, 1 + 3 * i) * 8
            target = out + load(wanted, 2 + 3 * i) * stride * 4
            layout = load(wanted, 3 + 3 * i)
            least = load(extents, i)
            if layout in (WORD, NAMED):
                for row in range(count):
                    word = load(source, row * width)
                    store(target, first + row, word)
                    least = min(least, word)
                least = 0 if layout == NAMED else least
            else:
                size = 4 if layout == NARROW else 16 if layout in (WIDE, SIGNED) else 8
                least = copy_word(source, width, count, target + first * size, layout, least)
            store(extents, i, least)
        source = block + load(wanted, 1 + 3 * last) * 8
        target = out + load(wanted, 2 + 3 * last) * stride * 4
        least = load(extents, last)
        for row in range(count):
            word = load(source, row * width)
            store(target, first + row, word)
            least = min(least, word)
            greatest = max(greatest, word)
        store(extents, last, least)
    store(extents, last + 1, greatest)


@kernel("void(int64,int64,int64,int64,int64)")
def copy_columns(table, wanted, extents, out, stride):
    """As `copy_words`, all rows of a table, which has some and has freed none."""
    copy_words(load(table, ROWS), load(table, WIDTH), load(table, USED), wanted, extents, out, stride)

"""The rows that a change of a view is told by, from the words of its output delta to columns as Arrow has them.

The rows are *gathered* first, row after row: the words of the raw columns, and room for what is computed. A bag's tuple
is one row with the change of its count. A group's tuple is two rows, before the change and after it: its sums
after the change are looked up, and those before it are less by the delta. Then a program computes columns, rows that
HAVING hides go, and the columns are written. All of it is one call, whose plan is made once. O(tuples changed).
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW, ROWS, USED, WIDTH
from sqlfront.storage.kernels.memory import add_overflows, load, memcpy, product_overflows, store
from sqlfront.storage.kernels.numbers.float_sums import quotients
from sqlfront.storage.kernels.programs.expression import compute
from sqlfront.storage.kernels.tables.appended_rows import copy_words
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_places

# The words of a plan of gathering. FACTOR is the table with the sums of groups, 0 for a bag. KEY has the places of its
# key in a row of the delta, and ABSENT is a row of zeros for a group that it has not. FIRST to LAST are the places of
# the delta's changes, DELTA_COUNT that of the row count, FACTOR_COUNT its place in the table, -1 if the tuple is always
# there. A gathered row has OUT words; the last two are its weight and its kind. COLUMNS lists what the others are.
FACTOR, SCRATCH, KEYS, KEY, ABSENT, FIRST, LAST, DELTA_COUNT = range(8)
FACTOR_COUNT, OUT, COLUMN_COUNT, COLUMNS, GATHER_WORDS = range(8, 13)
# A column: [kind, its place in a gathered row, a, b, c]. COPY: word a of the delta's row, and the b - 1 behind it.
# CONSTANT: the word a. COUNT: the sum of the terms at a. SUM: the same in two words; NULL if the terms at b come to 0.
# AVERAGE: the code of a DOUBLE, the former divided by the latter times |c|; by way of long doubles if c is positive.
COPY, CONSTANT, COUNT, SUM, AVERAGE = range(5)
COLUMN_WORDS = 5
# A term: [coefficient, place in the delta's row, place in the table's row]. A list of terms begins with their number.
TERM_WORDS = 3
INSERT, DELETE, PREIMAGE, POSTIMAGE = range(4)
# The words of a call. PLAN is that of gathering, 0 if the delta's rows are copied as they lie; ROOM has the gathered
# rows. PROGRAM has so many OPERATIONS, 0 without one. VISIBLE is the place of what HAVING computes, -1 without. SHOWN
# lists the places of the words that tell two images apart. WANTED are the words to copy, EXTENTS becomes theirs.
PLAN, ROOM, PROGRAM, OPERATIONS, REGISTERS, VISIBLE, SHOWN_COUNT, SHOWN, WANTED, EXTENTS, CALL_WORDS = range(11)
JOINED_WORDS = 5
_MOST = 2**63 - 1


@kernel("int64(int64,int64,int64,int64,int64)")
def total_of(terms, delta, row, before, out):
    """Write the sum of terms after a change, or `before` it, to `out`; 1 if it does not fit a word, else 0."""
    total = 0
    refused = 0
    for i in range(load(terms, 0)):
        term = terms + 8 + i * TERM_WORDS * 8
        word = load(row, load(term, 2))
        if before:
            change = load(delta, load(term, 1))
            former = word - change
            if ((word ^ change) & (word ^ former)) < 0:
                refused = 1
            word = former
        coefficient = load(term, 0)
        if product_overflows(coefficient, word):
            refused = 1
        word = coefficient * word
        if add_overflows(total, word):
            refused = 1
        total += word
    store(out, 0, total)
    return refused


@kernel("int64(int64,int64,int64,int64,int64)")
def write_row(plan, delta, row, before, out):
    """Write the columns of a tuple after a change, or `before` it; 1 if a number does not fit, else 0."""
    refused = 0
    for i in range(load(plan, COLUMN_COUNT)):
        column = load(plan, COLUMNS) + i * COLUMN_WORDS * 8
        kind = load(column, 0)
        target = out + load(column, 1) * 8
        a = load(column, 2)
        b = load(column, 3)
        if kind == COPY:
            for j in range(b):
                store(target, j, load(delta, a + j))
            continue
        if kind == CONSTANT:
            store(target, 0, a)
            continue
        refused |= total_of(a, delta, row, before, target)
        if kind == COUNT:
            continue
        word = load(target, 0)
        present = 1
        if b != 0:
            refused |= total_of(b, delta, row, before, target)
            present = load(target, 0)
        if kind == SUM:
            store(target, 0, word >> 63 if present != 0 else NULL_CODE)
            store(target, 1, word if present != 0 else 0)
            continue
        # The two numbers lie in the words behind the columns, which are written last.
        spare = out + (load(plan, OUT) - 2) * 8
        store(spare, 0, word)
        store(spare, 1, present)
        factor = load(column, 4)
        refused |= quotients(spare, spare + 8, abs(factor), 1, factor > 0, target)
        bits = load(target, 0)
        store(target, 0, bits ^ ((bits >> 63) & _MOST) if present != 0 else NULL_CODE)
    return refused


@kernel("int64(int64,int64,int64,int64,int64)")
def gather_rows(plan, rows, width, used, out):
    """Write the rows that the rows of a delta make; their number, or -1 if one is not to be made here."""
    size = load(plan, OUT)
    table = load(plan, FACTOR)
    made = 0
    for i in range(used):
        delta = rows + i * width * 8
        changed = False
        for place in range(load(plan, FIRST), load(plan, LAST)):
            changed = changed or load(delta, place) != 0
        if not changed:
            continue
        count = load(delta, load(plan, DELTA_COUNT))
        target = out + made * size * 8
        if table == 0:
            if count != 0:
                if write_row(plan, delta, delta, 0, target) != 0:
                    return -1
                store(target, size - 2, count)
                store(target, size - 1, INSERT if count > 0 else DELETE)
                made += 1
            continue
        keys = load(plan, KEY)
        found = find(table, load(plan, SCRATCH), hash_places(delta, keys, 0, load(plan, KEYS)), delta, keys, 0)
        row = load(plan, ABSENT) if found < 0 else load(table, ROWS) + found * load(table, WIDTH) * 8
        always = load(plan, FACTOR_COUNT) < 0
        after = 1 if always else load(row, load(plan, FACTOR_COUNT))
        was = always or after != count
        both = was and after != 0
        if was:
            if write_row(plan, delta, row, 1, target) != 0:
                return -1
            store(target, size - 2, -1)
            store(target, size - 1, PREIMAGE if both else DELETE)
            target += size * 8
            made += 1
        if after != 0:
            if write_row(plan, delta, row, 0, target) != 0:
                return -1
            store(target, size - 2, 1)
            store(target, size - 1, POSTIMAGE if both else INSERT)
            made += 1
    return made


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def keep_told(rows, size, made, visible, shown, places):
    """Leave out rows that HAVING hides, and two images with the same words at `shown` places; how many rows stay."""
    kept = 0
    i = 0
    while i < made:
        row = rows + i * size * 8
        is_pair = load(row, size - 1) == PREIMAGE
        following = row + size * 8
        first = visible < 0 or load(row, visible) == 1
        second = is_pair and (visible < 0 or load(following, visible) == 1)
        i += 2 if is_pair else 1
        if is_pair and first and second:
            same = True
            for j in range(shown):
                place = load(places, j)
                same = same and load(row, place) == load(following, place)
            if same:
                continue
        elif is_pair:
            store(row, size - 1, DELETE)
            store(following, size - 1, INSERT)
        if first:
            memcpy(rows + kept * size * 8, row, size * 8)
            kept += 1
        if second:
            memcpy(rows + kept * size * 8, following, size * 8)
            kept += 1
    return kept


@kernel("int64(int64,int64,int64,int64)")
def tell_rows(table, call, out, stride):
    """Write the told rows of a delta's table, which has freed none, to columns of `stride` words from `out` on; their
    number, or -1 if they are to be made in another way."""
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    used = load(table, USED)
    plan = load(call, PLAN)
    if plan != 0:
        room = load(call, ROOM)
        size = load(plan, OUT)
        used = gather_rows(plan, rows, width, used, room)
        if used < 0:
            return -1
        if load(call, OPERATIONS) != 0:
            refused = compute(load(call, PROGRAM), load(call, OPERATIONS), load(call, REGISTERS), room, size, used)
            if refused != 0:
                return -1
        used = keep_told(room, size, used, load(call, VISIBLE), load(call, SHOWN_COUNT), load(call, SHOWN))
        rows, width = room, size
    if used > 0:
        wanted, extents = load(call, WANTED), load(call, EXTENTS)
        copy_words(rows, width, used, wanted, extents, out, stride)
        for i in range(load(wanted, 0) - 1):
            if load(extents, i) <= RESERVED_LOW:
                return -1
    return used


@kernel("void(int64,int64,int64,int64,int64,int64)")
def join_blocks(blocks, count, starts, columns, out, stride):
    """Write the rows of blocks one after the other to columns of `stride` words from `out` on.

    A block is [where its columns begin, rows, stride, two words for all its rows]. `starts` are where each column
    begins, and where the last ends, in half strides; the last two before the end but one get the two words.
    """
    first = 0
    for b in range(count):
        block = blocks + b * JOINED_WORDS * 8
        rows = load(block, 1)
        for c in range(columns):
            start = load(starts, c)
            size = 4 * (load(starts, c + 1) - start)
            target = out + 4 * start * stride
            if columns - 4 < c < columns - 1:
                for i in range(first, first + rows):
                    store(target, i, load(block, c - columns + 6))
            else:
                memcpy(target + first * size, load(block, 0) + 4 * start * load(block, 2), rows * size)
        first += rows

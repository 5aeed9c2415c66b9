"""A table beside a spilled one, in memory, in which changes of rows wait: its write buffer.

A row that seldom changes is not in memory when it does. To change it in its place takes a page that is read and a page
that is written. So a change is added to the write buffer instead, by its key. When the buffer is full, one part of the
table after the other takes in what waits for its rows: pages of rows that lie together, several changes for each
(Severance and Lohman 1976, differential files; O'Neil et al. 1996, the log-structured merge-tree). A row that has
changed again since its part was last merged stays for another turn: so rows that change often are in memory, wherever
they lie in the table (the second chance of Corbato 1968).

So the words of a row are the sums of its words in the table and in the buffer. The engine marks tables that nothing
reads while an epoch runs as BUFFERED, and merges the buffer before anything else reads the table
(maintenance/write_buffers.py). A row is in the buffer only if the table has one of its hash. A change that takes rows
away goes to the table itself, after what waits for its key: so the table tells which row has come to a count of 0, or
below. Nothing begins to wait beside such a change, nor until rows without a count are gone: a row that goes with its
epoch would leave what waits behind.

Additions that do not fit have to be told by the epoch that brings them. So BUFFER_BOUND bounds the last words of all
values, and nothing waits once sums might not fit. The pages of a part are written and given back after it: when the
system is short of memory, it writes all changed pages. A changed row costs O(1), amortized.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    BUFFER_BOUND,
    BUFFER_PART,
    BUFFERED,
    CAPACITY,
    CHUNK,
    DIRTY,
    DIRTY_USED,
    FREE,
    INDEX_LIST,
    KEYS,
    LIMBS,
    LIVE,
    REFERENCES,
    ROWS,
    ROWS_MAPPED,
    SCRATCH_WORDS,
    SLOTS,
    SPILLED,
    TAIL,
    USED,
    VALUES,
    WIDTH,
    WRITE_BUFFER,
)
from sqlfront.storage.kernels.memory import advise, calloc, free, load, realloc, store, write_back
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.tables.hash_table import (
    add_values,
    count_references,
    find,
    make,
    new_row,
    remove_row,
    reserve,
    reserve_rows,
    upsert,
)
from sqlfront.storage.kernels.tables.hashing import hash_words
from sqlfront.storage.kernels.tables.read_ahead import is_missing, read_ahead, row_of

# The buffer has at most a sixth of the table's rows, and the table takes them in by 128 parts.
_SHARE, PARTS = 6, 128
# A 256th of the table's rows is merged as it comes: to look for the rows of each part would take longer.
_FEW = 256
_LIMIT = 1 << 61
_PAGE = 1 << 12
# Linux reads no more at a time.
_READ = 1 << 17
# MADV_WILLNEED and MADV_PAGEOUT of Linux.
_SOON, _OUT = 3, 21
# What BUFFER_BOUND is until the rows are looked through.
UNKNOWN = -1


@kernel("boolean(int64,int64,int64,int64,int64)")
def set_aside(table, scratch, delta, hashes, rows):
    """Add to the write buffer those of `rows` delta rows that change rows of the table; their hashes become -1. Whether
    the table has a buffer."""
    if load(table, BUFFERED) == 0:
        return False
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    width = keys + load(table, VALUES) * limbs
    if not note_values(table, delta, width, rows):
        merge_buffer(table, scratch)
        stop_buffering(table)
        return False
    buffer = load(table, WRITE_BUFFER)
    if buffer == 0:
        if load(table, ROWS_MAPPED) & SPILLED == 0 or not is_missing(table, 1, hashes, rows):
            return False
        buffer = new_buffer(table)
        if not note_values(table, delta, width, rows):  # It may have been unknown before.
            stop_buffering(table)
            return False
    if load(buffer, LIVE) + rows > load(buffer, CAPACITY):
        merge_buffer(table, scratch)
        drop_buffer(table)
        buffer = new_buffer(table)
    reserve(buffer, rows)
    waits = load(table, DIRTY_USED) == 0
    for i in range(rows):
        waits = waits and sign_of(delta + i * width * 8, keys, limbs) > 0
    for i in range(rows):
        h = load(hashes, i)
        source = delta + i * width * 8
        kept = find(buffer, scratch, h, source, 0, 0)
        row = row_of(table, h) if kept < 0 and waits else -1
        if kept >= 0 and not waits:
            take_in(table, scratch, buffer, kept, hashes + i * 8)
        elif kept >= 0 or row >= 0:
            add_row(table, buffer, kept, h, source, row)
            store(hashes, i, -1)
    while load(buffer, LIVE) * _SHARE > load(table, USED):
        merge_part(table, scratch)
    return True


@kernel("int64(int64)")
def new_buffer(table):
    """Make the write buffer of a table. The last word of its rows is twice the number that the row had in the table as
    it came, and 1 more once it has changed again."""
    buffer = make(load(table, KEYS), load(table, VALUES), load(table, LIMBS), 0, 0, 0)
    # All at once, twice as many as may wait: memory that is outgrown may not go back to the system.
    reserve_rows(buffer, 2 * load(table, USED) // _SHARE + 2 * CHUNK)
    store(table, WRITE_BUFFER, buffer)
    if load(table, BUFFER_BOUND) == UNKNOWN:
        store(table, BUFFER_BOUND, greatest_word(table))
    return buffer


@kernel("int64(int64)")
def greatest_word(table):
    """What bounds the last words of all values of a table's rows. O(rows)."""
    width = load(table, WIDTH) * 8
    ahead = _READ // width + 1
    bound = 0
    for row in range(load(table, USED)):
        address = load(table, ROWS) + row * width
        if row % ahead == 0:
            advise(address // _PAGE * _PAGE, 2 * _READ, _SOON)
        bound = max(bound, last_words(table, address))
    return bound


@kernel("void(int64)")
def drop_buffer(table):
    """Give the memory of a table's write buffer back, and with it what waits there."""
    buffer = load(table, WRITE_BUFFER)
    if buffer != 0:
        for word in (SLOTS, ROWS, DIRTY, INDEX_LIST):
            free(load(buffer, word))
        free(buffer)
        store(table, WRITE_BUFFER, 0)


@kernel("void(int64)")
def stop_buffering(table):
    """Let no row wait any more; none does."""
    drop_buffer(table)
    store(table, BUFFERED, 0)


@kernel("boolean(int64,int64,int64,int64)")
def note_values(table, delta, width, rows):
    """Let BUFFER_BOUND, if it is known, bound all values with these delta rows, too; whether they all fit."""
    bound = load(table, BUFFER_BOUND)
    if bound == UNKNOWN:
        return True
    for i in range(rows):
        bound += last_words(table, delta + i * width * 8)
        if bound >= _LIMIT:
            return False
    store(table, BUFFER_BOUND, bound)
    return True


@kernel("int64(int64,int64)")
def last_words(table, address):
    """1 more than the greatest last word of a row's values, without their signs; at most the limit."""
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    greatest = 0
    for v in range(load(table, VALUES)):
        word = load(address, keys + v * limbs + limbs - 1)
        greatest = max(greatest, word if word >= 0 else ~word)
    return min(greatest, _LIMIT - 1) + 1


@kernel("void(int64,int64,int64,int64,int64,int64)")
def add_row(table, buffer, kept, h, source, row):
    """Add a delta row to row `kept` of the buffer, or (-1) as a new one. The buffer has room."""
    keys = load(table, KEYS)
    values = load(table, VALUES)
    width = load(buffer, WIDTH) * 8
    if kept >= 0:
        address = load(buffer, ROWS) + kept * width
        add_values(address, buffer, source, keys, values)
        store(address, load(buffer, TAIL), load(address, load(buffer, TAIL)) | 1)
        return
    address = load(buffer, ROWS) + new_row(buffer, h) * width
    for i in range(keys + values * load(table, LIMBS)):
        store(address, i, load(source, i))
    store(address, load(buffer, TAIL), 2 * row)
    if load(table, REFERENCES) > 0:
        count_references(table, address, 1)


@kernel("void(int64,int64,int64,int64,int64)")
def take_in(table, scratch, buffer, kept, hashed):
    """Add row `kept` of the buffer, whose hash is at `hashed`, to the table, which has room for a row more; it leaves
    the buffer. All sums fit: BUFFER_BOUND bounds them."""
    address = load(buffer, ROWS) + kept * load(buffer, WIDTH) * 8
    upsert(table, scratch, hashed, 1, address)
    if load(table, REFERENCES) > 0:
        count_references(table, address, -1)
    remove_row(buffer, kept, load(hashed, 0))


@kernel("void(int64,int64)")
def merge_part(table, scratch):
    """Let the next part of a table take in what waits for its rows, but rows that have changed again since the last
    time."""
    part = load(table, BUFFER_PART)
    merge_rows(table, scratch, part, PARTS, load(table, USED), True)
    store(table, BUFFER_PART, (part + 1) % PARTS)


@kernel("void(int64,int64)")
def merge_buffer(table, scratch):
    """Let a table take in all that waits in its write buffer. O(rows that wait)."""
    buffer = load(table, WRITE_BUFFER)
    if buffer == 0 or load(buffer, LIVE) == 0:
        return
    used = load(table, USED)  # Rows that are new in the table do not move the bounds of its parts.
    parts = 1 if load(buffer, LIVE) * _FEW <= used else PARTS
    for part in range(parts):
        merge_rows(table, scratch, part, parts, used, False)
    store(buffer, USED, 0)
    store(buffer, FREE, 0)


@kernel("void(int64)")
def settle_buffer(table):
    """`merge_buffer`, between epochs."""
    if load(table, WRITE_BUFFER) != 0:
        scratch = calloc(SCRATCH_WORDS, 8)
        merge_buffer(table, scratch)
        free(scratch)


@kernel("void(int64,int64,int64,int64,int64,boolean)")
def merge_rows(table, scratch, part, parts, rows, again):
    """Let one of `parts` of the first `rows` rows of a table take in what waits for them; the last one what waits for
    later rows, too. Rows that have changed again stay for once if `again` is set."""
    first = rows * part // parts
    end = _LIMIT if part + 1 == parts else rows * (part + 1) // parts
    buffer = load(table, WRITE_BUFFER)
    keys = load(buffer, KEYS)
    limbs = load(buffer, LIMBS)
    width = load(buffer, WIDTH) * 8
    if parts > 1:
        ask_for(table, first, min(end, rows))
    hashes = realloc(0, 8 * CHUNK)
    kept = realloc(0, 8 * CHUNK)
    row = 0
    used = load(buffer, USED)
    while row < used:
        count = 0
        while row < used and count < CHUNK:
            address = load(buffer, ROWS) + row * width
            mark = load(address, load(buffer, TAIL))
            if first <= mark >> 1 and mark >> 1 < end and sign_of(address, keys, limbs) > 0:  # Free rows count nothing.
                if again and mark & 1 != 0:
                    store(address, load(buffer, TAIL), mark - 1)
                else:
                    store(hashes, count, hash_words(address, keys))
                    store(kept, count, row)
                    count += 1
            row += 1
        reserve(table, count)
        read_ahead(table, hashes, count)
        for i in range(count):
            take_in(table, scratch, buffer, load(kept, i), hashes + i * 8)
    free(hashes)
    free(kept)
    if parts > 1:
        let_go(table, first, min(end, load(table, USED)))


@kernel("void(int64,int64,int64)")
def ask_for(table, first, end):
    """Begin to read the rows from `first` to `end`, if rows for most of their pages wait."""
    width = load(table, WIDTH) * 8
    if (
        load(table, ROWS_MAPPED) & SPILLED == 0
        or load(load(table, WRITE_BUFFER), LIVE) * _PAGE < load(table, USED) * width
    ):
        return
    start = (load(table, ROWS) + first * width) // _PAGE * _PAGE
    while start < load(table, ROWS) + end * width:
        advise(start, _READ, _SOON)
        start += _READ


@kernel("void(int64,int64,int64)")
def let_go(table, first, end):
    """Have the pages that only rows from `first` to `end` lie on written, and give their memory back. Else the system
    would run short of memory, and write pages of rows that are still to be merged."""
    if load(table, ROWS_MAPPED) & SPILLED == 0:
        return
    width = load(table, WIDTH) * 8
    start = (load(table, ROWS) + first * width + _PAGE - 1) // _PAGE * _PAGE
    size = (load(table, ROWS) + end * width) // _PAGE * _PAGE - start
    if size > 0:
        write_back(start, size)
        advise(start, size, _OUT)

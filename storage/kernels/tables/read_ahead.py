"""Pages of spilled tables that are read before they are needed: look-ups wait for the disk together, not one by one.

A look-up in a table that is not in memory waits for the page of a slot, then for the page of a row. A step that looks
up many rows knows all hashes first. The step asks the system for the pages of all slots, and then for the pages of the
rows to which the slots point. So the disk has many requests at a time. A sample decides whether to ask.

Nothing depends on it: a page that is not read ahead is read when it is touched. A look-up makes at most two more calls
of the system, and none if the table is not spilled.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import MASK, ROWS, ROWS_MAPPED, SLOTS, SLOTS_MAPPED, SPILL, SPILLED, WIDTH
from sqlfront.storage.kernels.memory import advise, is_resident, load

_PAGE = 1 << 12
# MADV_WILLNEED of Linux: begin to read the pages, and do not wait for them.
_SOON = 3
_FEW, _SAMPLE = 8, 64


@kernel("boolean(int64,int64,int64)")
def read_ahead(table, hashes, count):
    """Begin to read what look-ups of `count` hashes will touch, but negative ones, if the table is spilled and not in
    memory; whether rows are missing."""
    missing = False
    for part in range(2):
        missing = is_missing(table, part, hashes, count)
        if missing:
            ask(table, part, hashes, count)
    return missing


@kernel("boolean(int64,int64,int64,int64)")
def is_missing(table, part, hashes, count):
    """Whether slots (part 0) or rows (part 1) of a spilled table are not in memory, by a sample of hashes."""
    mapped = load(table, SLOTS_MAPPED if part == 0 else ROWS_MAPPED)
    if load(table, SPILL) == 0 or mapped & SPILLED == 0 or count < _FEW:
        return False
    for i in range(0, count, max(1, count // _SAMPLE)):
        h = load(hashes, i)
        if h >= 0 and is_resident(touched(table, part, h) // _PAGE * _PAGE) == 0:
            return True
    return False


@kernel("void(int64,int64,int64,int64)")
def ask(table, part, hashes, count):
    """Begin to read the pages of the slots (part 0) or rows (part 1) of all hashes. To ask for a page that is in memory
    takes less time than to learn that it is in memory."""
    size = 8 if part == 0 else load(table, WIDTH) * 8
    for i in range(count):
        if load(hashes, i) < 0:
            continue
        address = touched(table, part, load(hashes, i))
        first = address // _PAGE * _PAGE
        advise(first, address + size - first, _SOON)


@kernel("int64(int64,int64,int64)")
def touched(table, part, h):
    """The first slot of a hash (part 0), or the row that its slots point to, or else its first slot (part 1)."""
    row = row_of(table, h) if part == 1 else -1
    if row < 0:
        return load(table, SLOTS) + (h & load(table, MASK)) * 8
    return load(table, ROWS) + row * load(table, WIDTH) * 8


@kernel("int64(int64,int64)")
def row_of(table, h):
    """The first row with a hash, whatever its key; -1 if there is none."""
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    i = h & mask
    slot = load(slots, i)
    while slot != 0 and slot >> 32 != h:
        i = (i + 1) & mask
        slot = load(slots, i)
    return (slot & 0xFFFFFFFF) - 1

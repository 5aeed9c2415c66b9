"""Subtree sums: each row of an ordered group knows the sums of all values below it in the group's tree, its own too.

They have one limb more than the rows' values, so sums of as many rows as there can be never overflow; and they are
what the values of the rows add up to at any moment, so an epoch that is undone leaves them as they were, even where a
value had overflowed. A rotation needs the sums of three rows, a changed value those of its ancestors (Cormen et al.,
*Introduction to Algorithms*, chapter on augmenting data structures).

A table with sums over boxes (boxes/box_sums.py) notes what is added and taken as entries: a row's key words and sums.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    BOX_BYTES,
    BOX_FIRST,
    BOX_NEW,
    BOX_RUN,
    BOX_RUNS,
    BOX_SECOND,
    BOXES,
    KEYS,
    LIMBS,
    LINKS,
    LIST_AT,
    LIST_ROOM,
    LIST_USED,
    LIVE,
    ORDER,
    ORDER_INDEX,
    ROWS,
    STEPS,
    SUMS,
    TAIL,
    UNMADE,
    VALUES,
    WIDTH,
)
from sqlfront.storage.kernels.memory import free, load, load32, memcpy, realloc, store
from sqlfront.storage.kernels.numbers.limbs import add_wide
from sqlfront.storage.kernels.tables.hashing import same_words

_MANY = 1024


@kernel("void(int64,int64,int64,int64)")
def add_own(table, into, row, negative):
    """Add (or with `negative` take) the values of the row at address `row` to the sums at address `into`."""
    limbs = load(table, LIMBS)
    keys = load(table, KEYS)
    for v in range(load(table, SUMS)):
        add_wide(into, v * (limbs + 1), limbs + 1, row, keys + v * limbs, limbs, negative)


@kernel("void(int64,int64,int64,int64)")
def add_below(table, into, row, negative):
    """Add (or with `negative` take) the subtree sums of the row at address `row` to the sums at address `into`."""
    limbs = load(table, LIMBS) + 1
    tail = load(table, TAIL) + 1
    for v in range(load(table, SUMS)):
        add_wide(into, v * limbs, limbs, row, tail + v * limbs, limbs, negative)


@kernel("void(int64,int64,int64,int64)")
def rotate_sums(table, upper, lifted, inner):
    """After the row at address `lifted` has become the parent of its parent, whose child `inner` (0: none) now is."""
    place = (load(table, TAIL) + 1) * 8
    add_below(table, upper + place, lifted, 1)
    add_below(table, lifted + place, upper, 0)
    if inner != 0:
        add_below(table, upper + place, inner, 0)


@kernel("int64(int64,int64,int64)")
def add_to_ancestors(table, row, negative):
    """Add (or with `negative` take) a row's values to the sums of the row and of all above it. Returns the steps."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    above = 2 * (load(table, LINKS) + 2 * load(load(table, ORDER), ORDER_INDEX)) + 3
    place = (load(table, TAIL) + 1) * 8
    node = row + 1
    steps = 0
    while node != 0:
        address = rows + (node - 1) * width
        add_own(table, address + place, rows + row * width, negative)
        node = load32(address, above)
        steps += 1
    return steps


@kernel("void(int64,int64,int64,int64)")
def change_sums(table, scratch, row, negative):
    """`add_to_ancestors` of a table with subtree sums, unless it is unsorted; `note_entry` of one with boxes."""
    if load(table, SUMS) > 0 and load(load(table, ORDER), ORDER_INDEX) >= 0:
        steps = add_to_ancestors(table, row, negative)
        store(scratch, STEPS, load(scratch, STEPS) + steps)
    if load(table, BOXES) != 0:
        note_entry(table, load(table, ROWS) + row * load(table, WIDTH) * 8, negative)


@kernel("int64(int64)")
def entry_words(table):
    """The words of an entry: a row's key, and a sum of each of its values."""
    return load(table, KEYS) + load(table, VALUES) * (load(table, LIMBS) + 1)


@kernel("void(int64,int64,int64)")
def note_entry(table, address, negative):
    """Note that the values of a row of a table with sums over boxes are added, or with `negative` taken.

    Nothing is noted until somebody has asked for a sum. Who writes more than there are rows, before somebody asks
    again, forgets what has been made.
    """
    new = load(table, BOXES) + BOX_NEW * 8
    used = load(new, LIST_USED)
    if used == UNMADE:
        return
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    width = entry_words(table)
    entry = load(new, LIST_AT) + (used - 1) * width * 8
    if used == 0 or not same_words(entry, address, keys):
        if used >= max(_MANY, load(table, LIVE)):
            forget_entries(table)
            return
        if (used + 1) * width > load(new, LIST_ROOM):
            room = max(64 * width, 2 * load(new, LIST_ROOM))
            store(new, LIST_AT, realloc(load(new, LIST_AT), room * 8))
            store(new, LIST_ROOM, room)
        entry = load(new, LIST_AT) + used * width * 8
        memcpy(entry, address, keys * 8)
        for i in range(keys, width):
            store(entry, i, 0)
        store(new, LIST_USED, used + 1)
    for v in range(load(table, VALUES)):
        add_wide(entry, keys + v * (limbs + 1), limbs + 1, address, keys + v * limbs, limbs, negative)


@kernel("void(int64)")
def forget_entries(table):
    """Give back all entries of a table with sums over boxes: they are made of its rows when somebody asks for a sum."""
    boxes = load(table, BOXES)
    if boxes == 0:
        return
    for i in range(load(boxes, BOX_RUNS)):
        free(load(boxes, BOX_RUN + i))
    store(boxes, BOX_RUNS, 0)
    store(boxes, BOX_BYTES, 0)
    new = boxes + BOX_NEW * 8
    free(load(new, LIST_AT))
    store(new, LIST_AT, 0)
    store(new, LIST_ROOM, 0)
    store(new, LIST_USED, UNMADE)


@kernel("void(int64)")
def free_boxes(table):
    """Give back all that a table has for sums over boxes."""
    boxes = load(table, BOXES)
    if boxes != 0:
        forget_entries(table)
        free(load(boxes, BOX_FIRST))
        free(load(boxes, BOX_SECOND))
        free(boxes)

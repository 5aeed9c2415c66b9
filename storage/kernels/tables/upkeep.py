"""Upkeep of whole tables: giving memory back, wider values, copies. All O(rows), none in an update's way."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    BUFFER_BOUND,
    CAPACITY,
    DIRTY,
    DIRTY_CAPACITY,
    DIRTY_USED,
    FREE,
    HOT_WORDS,
    INDEX_ENTRY,
    INDEX_LIST,
    INDEXES,
    KEYS,
    LIMBS,
    LINKS,
    LIVE,
    MASK,
    ORDER,
    OWNER,
    OWNER_INDEX,
    REFERENCE_LIST,
    ROWS,
    ROWS_MAPPED,
    SCRATCH_WORDS,
    SLOTS,
    SLOTS_MAPPED,
    SPILL,
    SUMMARIES,
    SUMS,
    TAIL,
    TOUCHED,
    USED,
    VALUES,
    WIDTH,
)
from sqlfront.storage.kernels.memory import calloc, free, load, load32, memcpy, prefetch, realloc, store, store32
from sqlfront.storage.kernels.numbers.limbs import copy_value, shift_left, sign_of
from sqlfront.storage.kernels.tables.delta import prefetch_row
from sqlfront.storage.kernels.tables.hash_table import count_references, find, orders, resize_slots
from sqlfront.storage.kernels.tables.hashing import hash_places
from sqlfront.storage.kernels.tables.hot_rows import forget_hot
from sqlfront.storage.kernels.tables.huge_pages import use_huge_pages
from sqlfront.storage.kernels.tables.mapped_memory import free_part
from sqlfront.storage.kernels.tables.ordered_group import is_listed, renumber_tree
from sqlfront.storage.kernels.tables.spilled_memory import new_part, replace_part, resize_rows, spills
from sqlfront.storage.kernels.tables.subtree_summaries import summaries, summary_order
from sqlfront.storage.kernels.tables.subtree_sums import forget_entries, free_boxes
from sqlfront.storage.kernels.tables.write_buffer import UNKNOWN, drop_buffer, settle_buffer, stop_buffering

_SMALLEST = 8
_FEW = 4096
_WAVE, _AHEAD = 64, 16


@kernel("void(int64)")
def destroy(table):
    """Give all of a table's memory back."""
    free_part(table, SLOTS, SLOTS_MAPPED)
    free_part(table, ROWS, ROWS_MAPPED)
    free(load(table, DIRTY))
    free(load(table, INDEX_LIST))
    free(load(table, REFERENCE_LIST))
    free(load(table, ORDER))
    for number in range(summaries(table)):
        free(summary_order(table, number))
    free(load(table, SUMMARIES))
    free(load(table, TOUCHED))
    free_boxes(table)
    forget_hot(table)
    drop_buffer(table)
    free(table)


@kernel("void(int64)")
def reset(table):
    """Empty a table that counts no references, but not its groups, and give its memory back. O(1)."""
    free_part(table, SLOTS, SLOTS_MAPPED)
    free_part(table, ROWS, ROWS_MAPPED)
    free(load(table, DIRTY))
    forget_entries(table)
    forget_hot(table)
    drop_buffer(table)
    store(table, BUFFER_BOUND, UNKNOWN)
    store(table, SLOTS, calloc(_SMALLEST, 8))
    store(table, MASK, _SMALLEST - 1)
    for word in (ROWS, CAPACITY, USED, FREE, LIVE, DIRTY, DIRTY_USED, DIRTY_CAPACITY):
        store(table, word, 0)


@kernel("void(int64,int64,int64)")
def take_slots(table, slots, mapped):
    """Give an empty table exactly so many slots: those mapped at an address, or (0) memory, which the caller fills."""
    free_part(table, SLOTS, SLOTS_MAPPED)
    size = slots * 8
    store(table, SLOTS, mapped if mapped != 0 else realloc(0, size))
    store(table, MASK, slots - 1)
    if mapped != 0:
        store(table, SLOTS_MAPPED, size)
    else:
        use_huge_pages(load(table, SLOTS), size)


@kernel("void(int64,int64,int64)")
def take_rows(table, rows, mapped):
    """Give an empty table exactly so many rows: those mapped at an address, or (0) memory, which the caller fills."""
    forget_entries(table)
    free_part(table, ROWS, ROWS_MAPPED)
    size = rows * load(table, WIDTH) * 8
    if mapped == 0 and rows > 0:
        store(table, ROWS, realloc(0, size))
        use_huge_pages(load(table, ROWS), size)
    else:
        store(table, ROWS, mapped)
        store(table, ROWS_MAPPED, size)
    store(table, CAPACITY, rows)
    store(table, BUFFER_BOUND, UNKNOWN)


@kernel("int64(int64)")
def wants_shrink(table):
    """1 if most of the table's rows are unused."""
    return 1 if load(table, USED) > 4 * load(table, LIVE) + 64 else 0


@kernel("void(int64,int64,int64,int64)")
def renumber_links(table, renumbered, used, moved):
    """After rows have moved from old to new numbers: rewrite members' links, groups' heads, members' group rows."""
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    for x in range(load(table, INDEXES)):
        group = load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0)
        group_width = load(group, WIDTH)
        tail = load(group, TAIL)
        place = 2 * (load(table, LINKS) + 2 * x)
        ordered = orders(table, x)
        for group_row in range(load(group, USED)):
            address = load(group, ROWS) + group_row * group_width * 8
            head = load32(address, 2 * tail)  # Links are row numbers plus one.
            if head != 0:
                store32(address, 2 * tail, load32(renumbered, head - 1) + 1)
        for row in range(moved):
            address = rows + row * width * 8
            if not is_listed(table, x, address):
                continue
            after = load32(address, place)
            if after != 0:
                store32(address, place, load32(renumbered, after - 1) + 1)
            store32(address, place + 1, load32(renumbered, load32(address, place + 1) - 1) + 1)
            # In a plain list, the member after the next, to be brought near; in a tree the parent, of renumber_tree.
            next_but_one = load32(address, place + 3) if not ordered else 0
            if next_but_one != 0:
                store32(address, place + 3, load32(renumbered, next_but_one - 1) + 1)
        if ordered:
            renumber_tree(table, x, renumbered, moved)
    owner = load(table, OWNER)
    if owner != 0:  # These rows are the groups of another table, whose members name them by number.
        member_rows = load(owner, ROWS)
        member_width = load(owner, WIDTH)
        place = 2 * (load(owner, LINKS) + 2 * load(table, OWNER_INDEX))
        for member in range(load(owner, USED)):
            address = member_rows + member * member_width * 8
            group_row = load32(address, place + 2)
            if group_row < used:  # A row in no list may have an old word here.
                store32(address, place + 2, load32(renumbered, group_row))


@kernel("void(int64,int64)")
def spill_to(table, to):
    """Spill a table's large arrays from now on, also those that it has; not its groups'. O(rows + slots)."""
    store(table, SPILL, to)
    if load(table, ROWS_MAPPED) == 0 and spills(table, load(table, CAPACITY) * load(table, WIDTH) * 8):
        resize_rows(table, load(table, CAPACITY))
    if load(table, SLOTS_MAPPED) == 0 and spills(table, (load(table, MASK) + 1) * 8):
        resize_slots(table, load(table, MASK) + 1)


@kernel("int64(int64,int64,int64)")
def as_they_lie(table, sequence, taken):
    """Append to a sequence of `taken` rows the live ones that it lacks, in the order of their numbers."""
    used = load(table, USED)
    slots = load(table, SLOTS)
    wanted = calloc(max(1, used), 4)  # Live rows are those that a slot names.
    for i in range(load(table, MASK) + 1):
        slot = load(slots, i)
        if slot != 0:
            store32(wanted, (slot & 0xFFFFFFFF) - 1, 1)
    for i in range(taken):
        store32(wanted, load32(sequence, i), 0)
    for row in range(used):
        if load32(wanted, row) == 1:
            store32(sequence, taken, row)
            taken += 1
    free(wanted)
    return taken


@kernel("void(int64,int64,int64)")
def by_group(table, index, sequence):
    """The rows of a table in the order of an index's groups, each group's in the order of its list."""
    group = load(load(table, INDEX_LIST) + index * (INDEX_ENTRY + 32) * 8, 0)
    width = load(table, WIDTH) * 8
    place = 2 * (load(table, LINKS) + 2 * index)
    rows = load(table, ROWS)
    group_width = load(group, WIDTH) * 8
    tails = load(group, ROWS) + load(group, TAIL) * 8
    taken = 0
    for group_row in range(load(group, USED)):
        tail = tails + group_row * group_width
        member = load32(tail, 0) if load32(tail, 1) > 0 else 0
        while member != 0:
            store32(sequence, taken, member - 1)
            taken += 1
            member = load32(rows + (member - 1) * width, place)


@kernel("void(int64,int64,int64,int64)")
def by_look_up(table, visitor, places, sequence):
    """The rows of a table in the order in which a visitor's rows first look them up by their words at `places`."""
    keys = load(table, KEYS)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    visitor_rows = load(visitor, ROWS)
    visitor_width = load(visitor, WIDTH) * 8
    used = load(visitor, USED)
    seen = calloc(max(1, load(table, USED)), 4)
    hashes = calloc(_WAVE, 8)
    scratch = calloc(SCRATCH_WORDS, 8)
    taken = 0
    for first in range(0, used, _WAVE):
        # Slots, then rows, then look-ups: what one pass asks memory for is there when the next one reads it.
        count = min(_WAVE, used - first)
        for i in range(count):
            h = hash_places(visitor_rows + (first + i) * visitor_width, places, 0, keys)
            store(hashes, i, h)
            prefetch(slots + (h & mask) * 8)
        for i in range(count):
            prefetch_row(table, load(hashes, i))
        for i in range(count):
            row = find(table, scratch, load(hashes, i), visitor_rows + (first + i) * visitor_width, places, 0)
            if row >= 0 and load32(seen, row) == 0:
                store32(seen, row, 1)
                store32(sequence, taken, row)
                taken += 1
    free(seen)
    free(hashes)
    free(scratch)
    as_they_lie(table, sequence, taken)


@kernel("void(int64,int64)")
def move_rows(table, sequence):
    """Move the live rows to new memory in the order of a sequence of all of them, unless they lie so already."""
    used = load(table, USED)
    live = load(table, LIVE)
    width = load(table, WIDTH) * 8
    in_place = used == live
    for i in range(live):
        if load32(sequence, i) != i:
            in_place = False
            break
    if in_place:
        return
    old = load(table, ROWS)
    renumbered = calloc(max(1, used), 4)
    made = new_part(table, max(1, live) * width)
    rows = made & -2
    for i in range(live):
        if i + _AHEAD < live:
            prefetch(old + load32(sequence, i + _AHEAD) * width)
        memcpy(rows + i * width, old + load32(sequence, i) * width, width)
        store32(renumbered, load32(sequence, i), i)
    slots = load(table, SLOTS)
    for i in range(load(table, MASK) + 1):
        slot = load(slots, i)
        if slot != 0:
            # The upper half of a slot is its row's hash, which stays.
            row = load32(renumbered, (slot & 0xFFFFFFFF) - 1)
            store(slots, i, (slot >> 32 << 32) | (row + 1))
    replace_part(table, ROWS, ROWS_MAPPED, made, max(1, live) * width)
    store(table, CAPACITY, max(1, live))
    store(table, USED, live)
    store(table, FREE, 0)
    renumber_links(table, renumbered, used, live)
    free(renumbered)


@kernel("void(int64)")
def trim(table):
    """Give back the memory behind the last row, and what slots the rows do not need."""
    rows = max(1, load(table, USED))
    unused = load(table, CAPACITY) - rows
    if unused > 0 and (load(table, ROWS_MAPPED) == 0 or unused > rows // 8):  # Out of a mapping, rows are copied.
        resize_rows(table, rows)
    if load(table, HOT_WORDS) > rows // 32 + 1:
        forget_hot(table)
    if load(table, DIRTY_CAPACITY) > _FEW and load(table, DIRTY_USED) <= _FEW:
        store(table, DIRTY, realloc(load(table, DIRTY), _FEW * 8))
        store(table, DIRTY_CAPACITY, _FEW)
    size = _SMALLEST
    while load(table, LIVE) * 2 > size:
        size *= 2
    if size <= load(table, MASK):
        resize_slots(table, size)


@kernel("void(int64,int64)")
def compact(table, index):
    """Lay live rows together, in the order of an index's groups (-1: as they lie), and give unused memory back.

    O(rows + slots). Row numbers change: nothing may be reading the table.
    """
    sequence = realloc(0, max(1, load(table, LIVE)) * 4)
    if index >= 0 and load(table, KEYS) > 0:
        by_group(table, index, sequence)
        move_rows(table, sequence)
    elif load(table, USED) > load(table, LIVE):
        as_they_lie(table, sequence, 0)
        move_rows(table, sequence)
    free(sequence)
    trim(table)


@kernel("void(int64,int64,int64)")
def align(table, visitor, places):
    """Lay live rows together in the order in which a visitor's rows first look them up by their words at `places`.

    O(rows + slots). Row numbers change: nothing may be reading the table.
    """
    sequence = realloc(0, max(1, load(table, LIVE)) * 4)
    if load(table, KEYS) > 0:
        by_look_up(table, visitor, places, sequence)
        move_rows(table, sequence)
    free(sequence)
    trim(table)


@kernel("void(int64,int64)")
def widen(table, limbs):
    """Give every value `limbs` limbs, and subtree sums one more, sign-extended in place; row numbers stay."""
    settle_buffer(table)
    stop_buffering(table)  # Until programs are made again.
    forget_entries(table)
    old_limbs = load(table, LIMBS)
    keys = load(table, KEYS)
    values = load(table, VALUES)
    old_width = load(table, WIDTH)
    sums = load(table, SUMS)
    width = old_width + (values + sums) * (limbs - old_limbs)
    old_rows = load(table, ROWS)
    used = load(table, USED)
    capacity = max(1, used)
    made = new_part(table, capacity * width * 8)
    rows = made & -2
    # A row is keys, values, the rest (links among it), and subtree sums, which have a limb more than values.
    rest = old_width - keys - values * old_limbs - sums * (old_limbs + 1)
    for row in range(used):
        source = old_rows + row * old_width * 8
        target = rows + row * width * 8
        for i in range(keys):
            store(target, i, load(source, i))
        for v in range(values):
            copy_value(target, keys + v * limbs, limbs, source, keys + v * old_limbs, old_limbs)
        for i in range(rest):
            store(target, keys + values * limbs + i, load(source, keys + values * old_limbs + i))
        for v in range(sums):
            new_place = width - (sums - v) * (limbs + 1)
            copy_value(target, new_place, limbs + 1, source, old_width - (sums - v) * (old_limbs + 1), old_limbs + 1)
    replace_part(table, ROWS, ROWS_MAPPED, made, capacity * width * 8)
    store(table, CAPACITY, capacity)
    store(table, LIMBS, limbs)
    store(table, WIDTH, width)
    store(table, LINKS, keys + values * limbs)
    store(table, TAIL, load(table, TAIL) + values * (limbs - old_limbs))


@kernel("int64(int64)")
def calloc_words(count):
    """That many zero words from the C allocator."""
    return calloc(count, 8)


@kernel("void(int64,int64,int64)")
def rescale(table, value, bits):
    """Multiply one value of every row by 2**bits; the values have been widened to hold it."""
    settle_buffer(table)
    stop_buffering(table)  # Until programs are made again.
    forget_entries(table)
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    limbs = load(table, LIMBS)
    place = load(table, KEYS) + value * limbs
    summed = load(table, TAIL) + 1 + value * (limbs + 1)
    for row in range(load(table, USED)):
        shift_left(rows + row * width * 8, place, limbs, bits)
        if value < load(table, SUMS):
            shift_left(rows + row * width * 8, summed, limbs + 1, bits)


@kernel("void(int64)")
def release_references(table):
    """Take back all of a table's references to dictionary codes, before it goes."""
    settle_buffer(table)
    slots = load(table, SLOTS)
    for i in range(load(table, MASK) + 1):
        slot = load(slots, i)
        if slot != 0:
            row = (slot & 0xFFFFFFFF) - 1
            count_references(table, load(table, ROWS) + row * load(table, WIDTH) * 8, -1)


@kernel("void(int64)")
def free_words(address):
    """Give memory of the C allocator back."""
    free(address)


@kernel("int64(int64,int64,int64,int64)")
def copy_rows(table, first, count, out):
    """Copy keys and values of the live rows among first..first+count-1 to `out`, row after row; returns how many."""
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    width = keys + load(table, VALUES) * limbs
    kept = 0
    for row in range(first, first + count):
        address = load(table, ROWS) + row * load(table, WIDTH) * 8
        if sign_of(address, keys, limbs) != 0:
            for i in range(width):
                store(out, kept * width + i, load(address, i))
            kept += 1
    return kept

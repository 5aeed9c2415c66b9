"""Upkeep of whole tables: giving memory back, wider values, copies. All O(rows), none in an update's way."""

from __future__ import annotations

from storage.jit import kernel
from storage.layout import (
    CAPACITY,
    DIRTY,
    DIRTY_CAPACITY,
    DIRTY_USED,
    FREE,
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
    SLOTS,
    TAIL,
    USED,
    VALUES,
    WIDTH,
)
from storage.limb_kernels import shift_left, sign_of
from storage.memory import calloc, free, load, load32, memcpy, realloc, store, store32
from storage.order_kernels import renumber_tree
from storage.table_kernels import count_references, orders, resize_slots

_SMALLEST = 8
_FEW = 4096


@kernel("void(int64)")
def destroy(table):
    """Give all of a table's memory back."""
    free(load(table, SLOTS))
    free(load(table, ROWS))
    free(load(table, DIRTY))
    free(load(table, INDEX_LIST))
    free(load(table, REFERENCE_LIST))
    free(load(table, ORDER))
    free(table)


@kernel("int64(int64)")
def wants_shrink(table):
    """1 if most of the table's rows are unused."""
    return 1 if load(table, USED) > 4 * load(table, LIVE) + 64 else 0


@kernel("void(int64,int64,int64)")
def renumber_links(table, renumbered, moved):
    """After rows have moved from old to new numbers: rewrite members' links, groups' heads, members' group rows."""
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    for x in range(load(table, INDEXES)):
        group = load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0)
        group_width = load(group, WIDTH)
        tail = load(group, TAIL)
        place = 2 * (load(table, LINKS) + 2 * x)
        for row in range(moved):
            address = rows + row * width * 8
            after = load32(address, place)
            before = load32(address, place + 1)
            if after != 0:
                store32(address, place, load32(renumbered, after - 1) + 1)
            if before != 0:
                store32(address, place + 1, load32(renumbered, before - 1) + 1)
            else:
                group_row = load32(address, place + 2)
                store32(load(group, ROWS) + group_row * group_width * 8, 2 * tail, row + 1)
        if orders(table, x):
            renumber_tree(table, x, renumbered, moved)
    owner = load(table, OWNER)
    if owner != 0:
        member_rows = load(owner, ROWS)
        member_width = load(owner, WIDTH)
        place = 2 * (load(owner, LINKS) + 2 * load(table, OWNER_INDEX))
        tail = load(table, TAIL)
        for row in range(moved):
            member = load32(rows + row * width * 8, 2 * tail)
            while member != 0:
                address = member_rows + (member - 1) * member_width * 8
                store32(address, place + 2, row)
                member = load32(address, place)


@kernel("boolean(int64,int64)")
def is_compact(table, order):
    """Whether rows lie without gaps and, if `order` is an index, in the order of its groups. O(rows) if so."""
    if load(table, USED) != load(table, LIVE):
        return False
    if order < 0 or load(table, KEYS) == 0:
        return True
    group = load(load(table, INDEX_LIST) + order * (INDEX_ENTRY + 32) * 8, 0)
    width = load(table, WIDTH)
    place = 2 * (load(table, LINKS) + 2 * order)
    rows = load(table, ROWS)
    group_width = load(group, WIDTH)
    tails = load(group, ROWS) + load(group, TAIL) * 8
    seen = 0
    for group_row in range(load(group, USED)):
        tail = tails + group_row * group_width * 8
        member = load32(tail, 0) if load32(tail, 1) > 0 else 0
        while member != 0:
            seen += 1
            if member != seen:
                return False
            member = load32(rows + (member - 1) * width * 8, place)
    return True


@kernel("void(int64,int64)")
def move_rows(table, order):
    """Move live rows together, in the order of index `order`'s groups (-1: as they lie), to new memory."""
    used = load(table, USED)
    live = load(table, LIVE)
    width = load(table, WIDTH)
    old = load(table, ROWS)
    slots = load(table, SLOTS)
    size = load(table, MASK) + 1
    renumbered = calloc(max(1, used), 4)
    for i in range(size):
        slot = load(slots, i)
        if slot != 0:
            store32(renumbered, (slot & 0xFFFFFFFF) - 1, 1)
    rows = realloc(0, max(1, live) * width * 8)
    moved = 0
    if order >= 0 and load(table, KEYS) > 0:
        group = load(load(table, INDEX_LIST) + order * (INDEX_ENTRY + 32) * 8, 0)
        place = 2 * (load(table, LINKS) + 2 * order)
        group_rows = load(group, ROWS)
        group_width = load(group, WIDTH)
        tail = load(group, TAIL)
        for group_row in range(load(group, USED)):
            member = load32(group_rows + group_row * group_width * 8, 2 * tail)
            if load32(group_rows + group_row * group_width * 8, 2 * tail + 1) == 0:
                member = 0
            while member != 0:
                memcpy(rows + moved * width * 8, old + (member - 1) * width * 8, width * 8)
                store32(renumbered, member - 1, moved)
                moved += 1
                member = load32(old + (member - 1) * width * 8, place)
    else:
        for row in range(used):
            if load32(renumbered, row) == 1:
                memcpy(rows + moved * width * 8, old + row * width * 8, width * 8)
                store32(renumbered, row, moved)
                moved += 1
    for i in range(size):
        slot = load(slots, i)
        if slot != 0:
            row = load32(renumbered, (slot & 0xFFFFFFFF) - 1)
            store(slots, i, (slot >> 32 << 32) | (row + 1))
    free(old)
    store(table, ROWS, rows)
    store(table, CAPACITY, max(1, live))
    store(table, USED, moved)
    store(table, FREE, 0)
    renumber_links(table, renumbered, moved)
    free(renumbered)


@kernel("void(int64,int64)")
def compact(table, order):
    """Lay live rows together, in the order of index `order`'s groups (-1: as they lie), and give unused memory back.

    O(rows + slots); rows that lie so already stay. Row numbers change: nothing may be reading the table.
    """
    if not is_compact(table, order):
        move_rows(table, order)
    live = load(table, LIVE)
    if load(table, CAPACITY) > max(1, live):
        store(table, ROWS, realloc(load(table, ROWS), max(1, live) * load(table, WIDTH) * 8))
        store(table, CAPACITY, max(1, live))
    if load(table, DIRTY_CAPACITY) > _FEW and load(table, DIRTY_USED) <= _FEW:
        store(table, DIRTY, realloc(load(table, DIRTY), _FEW * 8))
        store(table, DIRTY_CAPACITY, _FEW)
    wanted = _SMALLEST
    while live * 2 > wanted:
        wanted *= 2
    if wanted <= load(table, MASK):
        resize_slots(table, wanted)


@kernel("void(int64,int64)")
def widen(table, limbs):
    """Give every value `limbs` limbs, sign-extended in place; row numbers stay."""
    old_limbs = load(table, LIMBS)
    keys = load(table, KEYS)
    values = load(table, VALUES)
    old_width = load(table, WIDTH)
    width = old_width + values * (limbs - old_limbs)
    old_rows = load(table, ROWS)
    used = load(table, USED)
    capacity = max(1, used)
    rows = calloc(capacity * width, 8)
    rest = old_width - keys - values * old_limbs
    for row in range(used):
        source = old_rows + row * old_width * 8
        target = rows + row * width * 8
        for i in range(keys):
            store(target, i, load(source, i))
        for v in range(values):
            for i in range(old_limbs):
                store(target, keys + v * limbs + i, load(source, keys + v * old_limbs + i))
            filler = -1 if load(source, keys + (v + 1) * old_limbs - 1) < 0 else 0
            for i in range(old_limbs, limbs):
                store(target, keys + v * limbs + i, filler)
        for i in range(rest):
            store(target, keys + values * limbs + i, load(source, keys + values * old_limbs + i))
    free(old_rows)
    store(table, ROWS, rows)
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
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    limbs = load(table, LIMBS)
    place = load(table, KEYS) + value * limbs
    for row in range(load(table, USED)):
        shift_left(rows + row * width * 8, place, limbs, bits)


@kernel("void(int64)")
def release_references(table):
    """Take back all of a table's references to dictionary codes, before it goes."""
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

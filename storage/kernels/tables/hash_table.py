"""Tables in raw memory: a hash table over rows that keep their numbers, with linked group indexes."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    BOXES,
    CAPACITY,
    DIRTY,
    DIRTY_CAPACITY,
    DIRTY_USED,
    FREE,
    HEADER_WORDS,
    INDEX_ENTRY,
    INDEX_LIST,
    INDEXES,
    KEYS,
    LARGEST,
    LIMBS,
    LINKS,
    LIVE,
    MARK,
    MASK,
    ORDER,
    ORDER_INDEX,
    RANKS,
    REFERENCE_LIST,
    REFERENCES,
    ROWS,
    SLOTS,
    SLOTS_MAPPED,
    STEPS,
    TAIL,
    USED,
    VALUES,
    WIDTH,
)
from sqlfront.storage.kernels.memory import add_overflows, calloc, load, load32, realloc, store, store32
from sqlfront.storage.kernels.numbers.limbs import add_value, sign_of
from sqlfront.storage.kernels.tables.hashing import hash_words
from sqlfront.storage.kernels.tables.ordered_group import insert_ordered, remove_ordered, splice
from sqlfront.storage.kernels.tables.spilled_memory import new_part, replace_part, resize_rows
from sqlfront.storage.kernels.tables.subtree_sums import change_sums, note_entry

_SMALLEST = 8


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def make(keys, values, limbs, indexes, extra, summaries):
    """A new empty table; `extra` is -1 for a plain table, 0 for one with an ordered index, else how many words follow
    the tail of a group table, of a ranked one, or of one with subtree sums. So many words for subtree `summaries` come
    before the tail."""
    table = calloc(HEADER_WORDS, 8)
    store(table, KEYS, keys)
    store(table, VALUES, values)
    store(table, LIMBS, limbs)
    store(table, INDEXES, indexes)
    links = keys + values * limbs
    store(table, LINKS, links)
    store(table, TAIL, links + 2 * indexes + summaries)
    store(table, WIDTH, links + 2 * indexes + summaries + 1 + extra)
    store(table, SLOTS, calloc(_SMALLEST, 8))
    store(table, MASK, _SMALLEST - 1)
    store(table, INDEX_LIST, calloc(max(1, indexes * (INDEX_ENTRY + 32)), 8))
    return table


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def find(table, scratch, h, base, places, first):
    """The row whose key is the words of `base` at `places` (0: the first words), or -1. Counts slots looked at."""
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    keys = load(table, KEYS)
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    i = h & mask
    looked = 1
    found = -1
    while True:
        slot = load(slots, i)
        if slot == 0:
            break
        if slot >> 32 == h:  # The row, a miss in the cache, is read only if the whole hash agrees.
            row = (slot & 0xFFFFFFFF) - 1
            address = rows + row * width * 8
            equal = True
            if places == 0:
                for j in range(keys):
                    if load(address, j) != load(base, j):
                        equal = False
                        break
            else:
                for j in range(keys):
                    if load(address, j) != load(base, load(places, first + j)):
                        equal = False
                        break
            if equal:
                found = row
                break
        i = (i + 1) & mask
        looked += 1
    store(scratch, STEPS, load(scratch, STEPS) + looked)
    return found


@kernel("void(int64,int64)")
def resize_slots(table, size):
    """Move to a new slot array of `size` (a power of two); keys are not read."""
    old = load(table, SLOTS)
    old_size = load(table, MASK) + 1
    made = new_part(table, size * 8)
    slots = made & -2
    mask = size - 1
    for i in range(old_size):
        slot = load(old, i)
        if slot != 0:
            j = (slot >> 32) & mask
            while load(slots, j) != 0:
                j = (j + 1) & mask
            store(slots, j, slot)
    replace_part(table, SLOTS, SLOTS_MAPPED, made, size * 8)
    store(table, MASK, mask)


@kernel("void(int64,int64)")
def reserve_rows(table, more):
    """Make room for `more` rows behind those that are there."""
    used = load(table, USED)
    if used + more > load(table, CAPACITY):
        resize_rows(table, max(used + more, used + used // 2))


@kernel("void(int64,int64)")
def reserve(table, more):
    """Make room for `more` new rows, so that nothing moves while a batch is written."""
    size = load(table, MASK) + 1
    needed = load(table, LIVE) + more
    if needed * 2 > size:
        while needed * 2 > size:
            size *= 2
        resize_slots(table, size)
    reserve_rows(table, more)
    dirty = load(table, DIRTY_USED)
    if dirty + more > load(table, DIRTY_CAPACITY):
        capacity = max(dirty + more, 2 * dirty)
        store(table, DIRTY, realloc(load(table, DIRTY), capacity * 8))
        store(table, DIRTY_CAPACITY, capacity)


@kernel("int64(int64,int64)")
def new_row(table, h):
    """Take a free row, or the next unused one, and enter it in the slots. Its words are garbage."""
    free_row = load(table, FREE)
    if free_row != 0:
        row = free_row - 1
        store(table, FREE, load(load(table, ROWS) + row * load(table, WIDTH) * 8, 0))
    else:
        row = load(table, USED)
        store(table, USED, row + 1)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    i = h & mask
    while load(slots, i) != 0:
        i = (i + 1) & mask
    store(slots, i, (h << 32) | (row + 1))
    store(table, LIVE, load(table, LIVE) + 1)
    return row


@kernel("void(int64,int64,int64)")
def remove_row(table, row, h):
    """Take a row out of the slots (shifting later ones back, so no tombstones stay) and put it on the free list."""
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    i = h & mask
    while load(slots, i) & 0xFFFFFFFF != row + 1:
        i = (i + 1) & mask
    j = i
    while True:
        j = (j + 1) & mask
        slot = load(slots, j)
        if slot == 0:
            break
        # An entry moves into the gap if the gap is on its way from home, around the end of the array too.
        home = (slot >> 32) & mask
        if (j - home) & mask >= (j - i) & mask:
            store(slots, i, slot)
            i = j
    store(slots, i, 0)
    address = load(table, ROWS) + row * load(table, WIDTH) * 8
    width = load(table, WIDTH)
    for k in range(1, width):
        store(address, k, 0)
    store(address, 0, load(table, FREE))
    if load(table, KEYS) == 0:  # Without a key there is one row: it begins anew, with no free list.
        store(address, 0, 0)
        store(table, USED, 0)
    else:
        store(table, FREE, row + 1)
    store(table, LIVE, load(table, LIVE) - 1)


@kernel("void(int64)")
def clear_rows(table):
    """Empty a table that has never freed a row, but not its groups; O(rows), its memory stays."""
    used = load(table, USED)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    if 4 * used > mask:
        for i in range(mask + 1):
            store(slots, i, 0)
    else:
        for row in range(used):
            address = load(table, ROWS) + row * load(table, WIDTH) * 8
            i = hash_words(address, load(table, KEYS)) & mask
            while load(slots, i) & 0xFFFFFFFF != row + 1:
                i = (i + 1) & mask
            store(slots, i, 0)
    store(table, USED, 0)
    store(table, LIVE, 0)
    store(table, DIRTY_USED, 0)


@kernel("void(int64)")
def clear(table):
    """Empty a table without references that has never freed a row, and its groups; O(rows), its memory stays."""
    clear_rows(table)
    for x in range(load(table, INDEXES)):
        clear_rows(load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0))


@kernel("int64(int64,int64,int64,int64,int64)")
def add_values(address, table, delta, delta_keys, count):
    """Add `count` values of a delta row to a row; 1 if one does not fit."""
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    overflow = 0
    if limbs == 1:
        for v in range(count):
            a = load(address, keys + v)
            b = load(delta, delta_keys + v)
            overflow |= add_overflows(a, b)
            store(address, keys + v, a + b)
    else:
        for v in range(count):
            overflow |= add_value(address, keys + v * limbs, delta, delta_keys + v * limbs, limbs)
    return overflow


@kernel("boolean(int64,int64)")
def orders(table, x):
    """Whether the groups of index x are ordered."""
    order = load(table, ORDER)
    return order != 0 and load(order, ORDER_INDEX) == x


@kernel("void(int64,int64,int64,int64,int64)")
def link(table, scratch, row, x, h):
    """Enter a row in the list of its group of index x (`h` is the group key's hash), making the group if it is new.

    The caller has reserved room in the group table.
    """
    entry = load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8
    group = load(entry, 0)
    group_keys = load(entry, 1)
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    address = rows + row * width * 8
    group_row = find(group, scratch, h, address, entry, INDEX_ENTRY)
    group_width = load(group, WIDTH)
    tail = load(group, TAIL)
    if group_row < 0:
        group_row = new_row(group, h)
        group_address = load(group, ROWS) + group_row * group_width * 8
        for i in range(group_keys):
            store(group_address, i, load(address, load(entry, INDEX_ENTRY + i)))
        for i in range(group_keys, group_width):
            store(group_address, i, 0)
    group_address = load(group, ROWS) + group_row * group_width * 8
    place = 2 * (load(table, LINKS) + 2 * x)
    store32(address, place + 2, group_row)
    if orders(table, x):
        insert_ordered(table, scratch, row, group_address + 8 * tail)
    else:
        # The row goes in front. Its link to the next but one is the former head's link to the next.
        head = load32(group_address, 2 * tail)
        store32(address, place + 3, load32(rows + (head - 1) * width * 8, place) if head != 0 else 0)
        splice(table, place, row, 0, head, group_address + 8 * tail)
    size = load32(group_address, 2 * tail + 1) + 1
    store32(group_address, 2 * tail + 1, size)
    store(scratch, LARGEST, max(load(scratch, LARGEST), size))


@kernel("void(int64,int64,int64,int64)")
def unlink(table, scratch, row, x):
    """Take a row out of its group's list of index x; the group goes with its last member, unless it is ranked."""
    entry = load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8
    group = load(entry, 0)
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    address = rows + row * width * 8
    place = 2 * (load(table, LINKS) + 2 * x)
    after = load32(address, place)
    before = load32(address, place + 1)
    group_row = load32(address, place + 2)
    group_address = load(group, ROWS) + group_row * load(group, WIDTH) * 8
    tail = load(group, TAIL)
    head = load32(group_address, 2 * tail)
    if orders(table, x):
        steps = remove_ordered(table, row, group_address + 8 * tail)
        store(scratch, STEPS, load(scratch, STEPS) + steps)
    elif head != row + 1:
        # Two rows skip over this one: the row before takes its link, and the row before that points behind it. The
        # head's link back leads to the last row, so it does not count as a row before.
        former = rows + (before - 1) * width * 8
        store32(former, place + 3, load32(address, place + 3))
        if head != before:
            store32(rows + (load32(former, place + 1) - 1) * width * 8, place + 3, after)
    if head == row + 1:
        store32(group_address, 2 * tail, after)
    else:
        store32(rows + (before - 1) * width * 8, place, after)
    if after != 0 or head != row + 1:
        store32(rows + ((after if after != 0 else head) - 1) * width * 8, place + 1, before)
    size = load32(group_address, 2 * tail + 1) - 1
    store32(group_address, 2 * tail + 1, size)
    if size == 0 and (x > 0 or load(table, RANKS) == 0):
        remove_row(group, group_row, hash_words(group_address, load(group, KEYS)))


@kernel("void(int64,int64,int64)")
def count_references(table, address, change):
    """Add `change` to the reference counts of the dictionary codes in a row's key."""
    references = load(table, REFERENCE_LIST)
    for i in range(load(table, REFERENCES)):
        code = load(address, load(references, 2 * i))
        if code >= 0:
            counts = load(load(references, 2 * i + 1), 0)
            store(counts, code, load(counts, code) + change)


@kernel("int64(int64,int64,int64,int64,int64)")
def upsert(table, scratch, hashes, stride, delta):
    """Add one delta row (key words, then values) to the table and its groups; 1 if a value does not fit.

    `hashes` has the key's hash and then, every `stride` words, that of each index's group key. A new row of a ranked
    table waits to be placed.
    """
    h = load(hashes, 0)
    keys = load(table, KEYS)
    values = load(table, VALUES)
    limbs = load(table, LIMBS)
    width = load(table, WIDTH)
    indexes = load(table, INDEXES)
    ranked = 1 if load(table, RANKS) > 0 else 0
    row = find(table, scratch, h, delta, 0, 0)
    overflow = 0
    fresh = row < 0
    if fresh:
        row = new_row(table, h)
        address = load(table, ROWS) + row * width * 8
        for i in range(keys + values * limbs):
            store(address, i, load(delta, i))
        for i in range(keys + values * limbs, width):
            store(address, i, 0)
        for x in range(ranked, indexes):
            link(table, scratch, row, x, load(hashes, (1 + x) * stride))
        if load(table, REFERENCES) > 0:
            count_references(table, address, 1)
        if load(table, BOXES) != 0:
            note_entry(table, address, 0)
    else:
        address = load(table, ROWS) + row * width * 8
        # Sums of subtrees on the way to the root hold this row's values: the old ones go, then the new ones come.
        change_sums(table, scratch, row, 1)
        overflow = add_values(address, table, delta, keys, values)
        change_sums(table, scratch, row, 0)
    for x in range(ranked, indexes):
        group = load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0)
        summed = load(group, VALUES)
        if summed > 0:
            group_row = load32(address, 2 * (load(table, LINKS) + 2 * x) + 2)
            group_address = load(group, ROWS) + group_row * load(group, WIDTH) * 8
            overflow |= add_values(group_address, group, delta, keys, summed)
    if limbs == 1:
        empty = load(address, keys) <= 0
    else:
        empty = sign_of(address, keys, limbs) <= 0
    if empty or (fresh and ranked == 1):  # Noted once a change, so a row may be noted twice: `sweep` marks it.
        dirty = load(table, DIRTY_USED)
        store(load(table, DIRTY), dirty, row)
        store(table, DIRTY_USED, dirty + 1)
    return overflow


@kernel("int64(int64)")
def first_negative(table):
    """A row whose count is negative, or -1; only rows written since the last sweep can be."""
    dirty = load(table, DIRTY)
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    for i in range(load(table, DIRTY_USED)):
        row = load(dirty, i)
        if sign_of(rows + row * width * 8, load(table, KEYS), load(table, LIMBS)) < 0:
            return row
    return -1


@kernel("int64(int64,int64)")
def sweep(table, scratch):
    """Free the rows whose count has come to 0; 1 if the table has grown too large for what is left in it.

    It runs once at the end of an epoch: a row that is empty in between keeps its other sums until then.
    """
    pending = load(table, DIRTY_USED)
    if pending == 0:
        return 0
    dirty = load(table, DIRTY)
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    # First mark, then free: a freed row's words are the free list's, and a row that is noted twice must go once.
    kept = 0
    for i in range(pending):
        row = load(dirty, i)
        address = rows + row * width * 8
        if load(address, keys) != MARK and sign_of(address, keys, limbs) == 0:
            store(address, keys, MARK)
            store(dirty, kept, row)
            kept += 1
    for i in range(kept):
        row = load(dirty, i)
        address = rows + row * width * 8
        for x in range(load(table, INDEXES)):
            unlink(table, scratch, row, x)
        if load(table, REFERENCES) > 0:
            count_references(table, address, -1)
        remove_row(table, row, hash_words(address, keys))
    store(table, DIRTY_USED, 0)
    if pending > 4096:
        store(table, DIRTY, realloc(dirty, 4096 * 8))
        store(table, DIRTY_CAPACITY, 4096)
    return 1 if load(table, USED) > 4 * load(table, LIVE) + 64 else 0

"""Enumeration: walk a tree's lists in blocks, holding one row address per level, never a copied row.

A walk is a list of levels. Level i takes the block of level i-1 and appends, to each of its rows, the
addresses of matching rows of one table. Blocks are bounded and every level can stop in the middle, so
memory is constant and a reader that wants three rows pays for three.
"""

from __future__ import annotations

from storage.jit import kernel
from storage.layout import KEYS, LIMBS, LINKS, MASK, ROWS, SLOTS, TAIL, USED, WIDTH
from storage.limb_kernels import multiply, sign_of
from storage.memory import load, load32, prefetch, product_overflows, store
from storage.table_kernels import find, hash_words

SCAN_LEVEL, GROUP_LEVEL, PROBE_LEVEL, UNIT_LEVEL = 0, 1, 2, 3
# Words of a level: the kind, these, then key sources (level, place). A unit level has one row: its table's address.
LEVEL_WORDS = 96
_TABLE, _MEMBERS, _INDEX, _BLOCK, _COUNT, _POSITION, _CURSOR, _HASHES, _SOURCES, _FIRST = range(1, 11)
_AHEAD = 12


@kernel("void(int64,int64,int64)")
def level_key(level, addresses, out):
    """Collect a look-up key from the rows whose addresses one input row holds."""
    for j in range(load(level, _SOURCES)):
        source = load(addresses, load(level, _FIRST + 2 * j))
        store(out, j, load(source, load(level, _FIRST + 2 * j + 1)))


@kernel("int64(int64,int64)")
def scan_level(level, capacity):
    """Fill a block with the live rows of a table, in row order."""
    table = load(level, _TABLE)
    block = load(level, _BLOCK)
    row = load(level, _CURSOR)
    used = load(table, USED)
    rows = load(table, ROWS)
    width = load(table, WIDTH)
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    made = 0
    while row < used and made < capacity:
        address = rows + row * width * 8
        if sign_of(address, keys, limbs) != 0:
            store(block, made, address)
            made += 1
        row += 1
    store(level, _CURSOR, row)
    return made


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def join_level(level, before, depth, capacity, scratch, temporary):
    """Fill a block of `depth` + 1 addresses a row from the block of the level before."""
    kind = load(level, 0)
    table = load(level, _TABLE)
    block = load(level, _BLOCK)
    position = load(level, _POSITION)
    cursor = load(level, _CURSOR)
    hashes = load(level, _HASHES)
    source = load(before, _BLOCK)
    rows = load(before, _COUNT)
    count = load(level, _SOURCES)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    if position == 0 and cursor == 0:
        for i in range(rows):
            level_key(level, source + i * depth * 8, temporary)
            store(hashes, i, hash_words(temporary, count))
    table_rows = load(table, ROWS)
    table_width = load(table, WIDTH)
    tail = load(table, TAIL)
    members = load(level, _MEMBERS)
    member_rows = load(members, ROWS)
    member_width = load(members, WIDTH)
    link_place = 2 * (load(members, LINKS) + 2 * load(level, _INDEX))
    made = 0
    while position < rows and made < capacity:
        input_row = source + position * depth * 8
        if position + _AHEAD < rows:
            prefetch(slots + (load(hashes, position + _AHEAD) & mask) * 8)
        if position + _AHEAD // 2 < rows:
            slot = load(slots, load(hashes, position + _AHEAD // 2) & mask)
            if slot != 0:
                prefetch(table_rows + ((slot & 0xFFFFFFFF) - 1) * table_width * 8)
        if cursor == 0:
            level_key(level, input_row, temporary)
            row = find(table, scratch, load(hashes, position), temporary, 0, 0)
            if row < 0:
                position += 1
                continue
            if kind == PROBE_LEVEL:
                for j in range(depth):
                    store(block, made * (depth + 1) + j, load(input_row, j))
                store(block, made * (depth + 1) + depth, table_rows + row * table_width * 8)
                made += 1
                position += 1
                continue
            cursor = load32(table_rows + row * table_width * 8, 2 * tail)
        while cursor != 0 and made < capacity:
            address = member_rows + (cursor - 1) * member_width * 8
            cursor = load32(address, link_place)
            for j in range(depth):
                store(block, made * (depth + 1) + j, load(input_row, j))
            store(block, made * (depth + 1) + depth, address)
            made += 1
        if cursor == 0:
            position += 1
    store(level, _POSITION, position)
    store(level, _CURSOR, cursor)
    return made


@kernel("int64(int64,int64,int64,int64,int64)")
def next_block(levels, count, capacity, scratch, temporary):
    """Fill the last level's block; the number of its rows, 0 at the end."""
    i = count - 1
    while True:
        level = levels + i * LEVEL_WORDS * 8
        if load(level, 0) == SCAN_LEVEL:
            made = scan_level(level, capacity)
        elif load(level, 0) == UNIT_LEVEL:
            made = 1 - load(level, _CURSOR)
            store(level, _CURSOR, 1)
            store(load(level, _BLOCK), 0, load(level, _TABLE))
        else:
            made = join_level(level, level - LEVEL_WORDS * 8, i, capacity, scratch, temporary)
        store(level, _COUNT, made)
        if made > 0:
            if i == count - 1:
                return made
            i += 1
            below = levels + i * LEVEL_WORDS * 8
            store(below, _POSITION, 0)
            store(below, _CURSOR, 0)
        else:
            if i == 0:
                return 0
            i -= 1


@kernel("void(int64,int64,int64,int64,int64,int64)")
def gather_word(block, depth, level, place, out, rows):
    """Column `out`: the word at `place` of each row's address number `level`."""
    for i in range(rows):
        store(out, i, load(load(block, i * depth + level), place))


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def gather_product(block, depth, factors, count, out, limbs, rows, temporary):
    """Values `out`, of `limbs` words: the product over `factors`, (level, place, limbs)...; 1 if one does not fit."""
    overflow = 0
    for i in range(rows):
        store(out, i * limbs, 1)
        for j in range(1, limbs):
            store(out, i * limbs + j, 0)
    for f in range(count):
        level = load(factors, 3 * f)
        place = load(factors, 3 * f + 1)
        own = load(factors, 3 * f + 2)
        if limbs == 1 and own == 1:
            for i in range(rows):
                a = load(out, i)
                b = load(load(block, i * depth + level), place)
                overflow |= product_overflows(a, b)
                store(out, i, a * b)
        else:
            for i in range(rows):
                base = out + i * limbs * 8
                overflow |= multiply(
                    base, 0, limbs, base, 0, limbs, load(block, i * depth + level), place, own, temporary
                )
    return overflow

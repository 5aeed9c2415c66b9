"""Enumeration: walk a tree's lists in blocks, holding one row address per level, never a copied row.

A walk is a list of levels. Level i takes the block of level i-1 and appends, to each of its rows, the
addresses of matching rows of one table. Blocks are bounded and every level can stop in the middle, so
memory is constant and a reader that wants three rows pays for three.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, LINKS, MASK, OWNER, ROWS, SLOTS, STEPS, TAIL, USED, WIDTH
from sqlfront.storage.kernels.memory import load, load32, prefetch, product_overflows, store
from sqlfront.storage.kernels.numbers.limbs import multiply, sign_of
from sqlfront.storage.kernels.tables.delta import prefetch_row
from sqlfront.storage.kernels.tables.extreme_search import passing_from, within
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_words
from sqlfront.storage.kernels.tables.range_scan import first_passing
from sqlfront.storage.kernels.tables.waves import (
    ENTRY,
    HOPS,
    KEY,
    MEMBER,
    OUT,
    SOURCE,
    WAVE,
    enter_list,
    extend,
    list_members,
)

SCAN_LEVEL, GROUP_LEVEL, PROBE_LEVEL, RANGE_LEVEL, FIRST_LEVEL, LAST_LEVEL = range(6)
# Rows of the last level's block, and of those before: so few that what was just found stays in the cache until the
# words of all levels are read.
BLOCK, UPPER_BLOCK = 4096, 256
# Words of a level: the kind, these, then key sources (level, place).
LEVEL_WORDS = 96
_TABLE, _MEMBERS, _INDEX, _BLOCK, _COUNT, _POSITION, _CURSOR, _LEFT_OVER, _SOURCES = range(1, 10)
_GUESS, LOOKED_UP, JUMPS, _TESTS, _MISSING, _FIRST = range(10, 16)
# The tests of a RANGE_LEVEL: the places of that of the lower bound, of the upper one, and of that beside them (0:
# none), their number, and where each begins; a test is the level of its left side, then as a RANGE step's.
_LOWER, _UPPER, _BESIDE, _NUMBER, _FIRST_TEST = range(5)
# Before their groups are listed, the entries of a wave are look-ups: which row was found, by which hash.
_ROW, _HASH = MEMBER, OUT


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


@kernel("boolean(int64,int64,int64)")
def is_at(table, row, key):
    """Whether that row of a table is in use and has this key."""
    keys = load(table, KEYS)
    if row >= load(table, USED) or keys == 0:
        return False
    address = load(table, ROWS) + row * load(table, WIDTH) * 8
    for i in range(keys):
        if load(address, i) != load(key, i):
            return False
    if load(table, OWNER) != 0:
        return load32(address, 2 * load(table, TAIL) + 1) > 0
    return sign_of(address, keys, load(table, LIMBS)) != 0


@kernel("void(int64,int64,int64,int64,int64,int64)")
def look_up(level, source, depth, count, scratch, wave):
    """Enter `count` input rows, at `source`, in the wave, each with the row its key leads to (-1: none).

    Where tables are laid out in the order of the walk, it is the row after the last one found.
    """
    table = load(level, _TABLE)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    keys = load(level, _SOURCES)
    key = wave + KEY * 8
    guess = load(level, _GUESS)
    missed = 0
    for i in range(count):
        entry = wave + i * ENTRY * 8
        store(entry, SOURCE, source + i * depth * 8)
        level_key(level, source + i * depth * 8, key)
        if is_at(table, guess, key):
            store(entry, _ROW, guess)
            guess += 1
        else:
            h = hash_words(key, keys)
            store(entry, _ROW, -1)
            store(entry, _HASH, h)
            prefetch(slots + (h & mask) * 8)
            missed += 1
    if missed > 0:
        for i in range(count):
            entry = wave + i * ENTRY * 8
            if load(entry, _ROW) < 0:
                prefetch_row(table, load(entry, _HASH))
        for i in range(count):
            entry = wave + i * ENTRY * 8
            if load(entry, _ROW) < 0:
                level_key(level, load(entry, SOURCE), key)
                row = find(table, scratch, load(entry, _HASH), key, 0, 0)
                store(entry, _ROW, row)
                if row >= 0:
                    guess = row + 1
    store(level, _GUESS, guess)
    store(level, LOOKED_UP, load(level, LOOKED_UP) + count)
    store(level, JUMPS, load(level, JUMPS) + missed)
    store(scratch, STEPS, load(scratch, STEPS) + count - missed)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def join_level(level, before, depth, capacity, scratch, wave):
    """Fill a block of `depth` + 1 addresses a row from the block of the level before.

    Input rows come in waves: their keys are looked up, then their groups' members listed, as many as there is room for.
    An input row without any is listed once with the level's row `missing`, if it has one.
    """
    table = load(level, _TABLE)
    block = load(level, _BLOCK)
    position = load(level, _POSITION)
    cursor = load(level, _CURSOR)
    source = load(before, _BLOCK)
    rows = load(before, _COUNT)
    left_over = load(level, _LEFT_OVER)
    table_rows = load(table, ROWS)
    table_width = load(table, WIDTH) * 8
    tail = load(table, TAIL)
    members = load(level, _MEMBERS)
    member_rows = load(members, ROWS)
    member_width = load(members, WIDTH) * 8
    made = 0
    while position < rows and made < capacity:
        active = 0
        if cursor != 0:
            enter_list(wave, 0, source + position * depth * 8, cursor, min(left_over, capacity), made)
            made += min(left_over, capacity)
            left_over -= min(left_over, capacity)
            active = 1
            position += 1
        else:
            count = min(WAVE, rows - position, capacity - made)
            look_up(level, source + position * depth * 8, depth, count, scratch, wave)
            for i in range(count):
                entry = wave + i * ENTRY * 8
                row = load(entry, _ROW)
                if made == capacity:  # Looked up in vain: the guess finds this row at once in the next block.
                    store(level, _GUESS, max(0, row))
                    break
                position += 1
                if row < 0:
                    if load(level, _MISSING) != 0:
                        extend(block + made * (depth + 1) * 8, load(entry, SOURCE), depth, load(level, _MISSING))
                        made += 1
                    continue
                address = table_rows + row * table_width
                if load(level, 0) == PROBE_LEVEL:
                    extend(block + made * (depth + 1) * 8, load(entry, SOURCE), depth, address)
                    made += 1
                    continue
                size = load32(address, 2 * tail + 1)
                member = load32(address, 2 * tail)
                first = member_rows + (member - 1) * member_width
                prefetch(first)
                prefetch(first + member_width - 8)
                if size == 1:  # No hop to wait for, so no list of the wave.
                    extend(block + made * (depth + 1) * 8, load(entry, SOURCE), depth, first)
                    made += 1
                    continue
                taken = min(size, capacity - made)
                left_over = size - taken
                enter_list(wave, active, load(entry, SOURCE), member, taken, made)
                made += taken
                active += 1
        store(wave, HOPS, 0)
        cursor = list_members(members, load(level, _INDEX), block, depth, active, wave)
        store(level, JUMPS, load(level, JUMPS) + load(wave, HOPS))
        if cursor != 0:  # The last list was cut by the capacity: its input row is not done.
            position -= 1
    store(level, _POSITION, position)
    store(level, _CURSOR, cursor)
    store(level, _LEFT_OVER, left_over)
    return made


@kernel("boolean(int64,int64,int64)")
def passes_all(tests, addresses, member):
    """Whether a member passes all tests of a RANGE_LEVEL for an input row."""
    for i in range(load(tests, _NUMBER)):
        test = tests + load(tests, _FIRST_TEST + i) * 8
        if not within(test + 8, load(addresses, load(test, 0)), member):
            return False
    return True


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def range_level(level, before, depth, capacity, scratch, key):
    """Fill a block as `join_level` does, with the members of each input row's ordered group that pass its tests; at
    most those between the bounds are met, after O(log group) steps. `key` is room for one key."""
    group = load(level, _TABLE)
    table = load(level, _MEMBERS)
    block = load(level, _BLOCK)
    position = load(level, _POSITION)
    member = load(level, _CURSOR)
    tests = load(level, _TESTS)
    lower = load(tests, _LOWER) * 8
    upper = load(tests, _UPPER) * 8
    beside = load(tests, _BESIDE) * 8
    after = 2 * (load(table, LINKS) + 2 * load(level, _INDEX))
    rows = load(before, _COUNT)
    made = 0
    steps = 0
    while position < rows and made < capacity:
        source = load(before, _BLOCK) + position * depth * 8
        if member == 0:
            level_key(level, source, key)
            group_row = find(group, scratch, hash_words(key, load(level, _SOURCES)), key, 0, 0)
            if group_row >= 0:
                tail = load(group, ROWS) + (group_row * load(group, WIDTH) + load(group, TAIL)) * 8
                member = load32(tail, 0)
                if lower != 0:
                    row = load(source, load(tests + lower, 0))
                    member = first_passing(table, scratch, load32(tail, 2), tests + lower + 8, row)
            if beside != 0:
                row = load(source, load(tests + beside, 0))
                member = passing_from(table, load(level, _INDEX), scratch, member, tests + beside + 8, row)
        while member != 0 and made < capacity:
            address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            steps += 1
            if upper != 0 and not within(tests + upper + 8, load(source, load(tests + upper, 0)), address):
                member = 0
            else:
                if passes_all(tests, source, address):
                    extend(block + made * (depth + 1) * 8, source, depth, address)
                    made += 1
                member = load32(address, after)
                if beside != 0:
                    row = load(source, load(tests + beside, 0))
                    member = passing_from(table, load(level, _INDEX), scratch, member, tests + beside + 8, row)
        if member == 0:
            position += 1
    store(level, _POSITION, position)
    store(level, _CURSOR, member)
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return made


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def end_level(level, before, depth, capacity, scratch, key):
    """Fill a block as `join_level` does, with the first or the last member of each input row's ordered group. `key` is
    room for one key. O(1) a row: the head of a list names the last member."""
    group = load(level, _TABLE)
    table = load(level, _MEMBERS)
    place = 2 * (load(table, LINKS) + 2 * load(level, _INDEX))
    position = load(level, _POSITION)
    rows = load(before, _COUNT)
    made = 0
    steps = 0
    while position < rows and made < capacity:
        source = load(before, _BLOCK) + position * depth * 8
        level_key(level, source, key)
        group_row = find(group, scratch, hash_words(key, load(level, _SOURCES)), key, 0, 0)
        member = 0
        if group_row >= 0:
            member = load32(load(group, ROWS) + (group_row * load(group, WIDTH) + load(group, TAIL)) * 8, 0)
        if member != 0:
            address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            if load(level, 0) == LAST_LEVEL:
                address = load(table, ROWS) + (load32(address, place + 1) - 1) * load(table, WIDTH) * 8
            extend(load(level, _BLOCK) + made * (depth + 1) * 8, source, depth, address)
            made += 1
        position += 1
        steps += 1
    store(level, _POSITION, position)
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return made


@kernel("int64(int64,int64,int64,int64,int64)")
def next_block(levels, count, capacity, scratch, wave):
    """Fill the last level's block; the number of its rows, 0 at the end."""
    i = count - 1
    while True:
        level = levels + i * LEVEL_WORDS * 8
        room = capacity if i == count - 1 else min(capacity, UPPER_BLOCK)
        if load(level, 0) == SCAN_LEVEL:
            made = scan_level(level, room)
        elif load(level, 0) == RANGE_LEVEL:
            made = range_level(level, level - LEVEL_WORDS * 8, i, room, scratch, wave + KEY * 8)
        elif load(level, 0) >= FIRST_LEVEL:
            made = end_level(level, level - LEVEL_WORDS * 8, i, room, scratch, wave + KEY * 8)
        else:
            made = join_level(level, level - LEVEL_WORDS * 8, i, room, scratch, wave)
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


@kernel("int64(int64,int64,int64,int64,int64,int64,int64)")
def next_rows(levels, count, capacity, scratch, wave, gathered, words):
    """Walk on by up to `capacity` rows; how many, 0 at the end. Of each, the words `gathered` lists, (level, place,
    column)..., are written to these columns."""
    block = load(levels + (count - 1) * LEVEL_WORDS * 8, _BLOCK)
    made = 0
    while made < capacity:
        rows = next_block(levels, count, min(BLOCK, capacity - made), scratch, wave)
        if rows == 0:
            break
        for w in range(words):
            column = load(gathered, 3 * w + 2) + made * 8
            gather_word(block, count, load(gathered, 3 * w), load(gathered, 3 * w + 1), column, rows)
        made += rows
    return made


@kernel("boolean(int64,int64,int64)")
def all_equal(column, rows, word):
    """Whether each word of a column is this one."""
    differ = 0
    for i in range(rows):
        differ |= load(column, i) ^ word
    return differ == 0


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def gather_product(block, depth, factors, count, out, limbs, rows, temporary):
    """Values `out`, of `limbs` words: the product over `factors`, (level, place, limbs)...; 1 if one does not fit."""
    overflow = 0
    if count == 0 or load(factors, 2) != limbs:
        for i in range(rows):
            store(out, i * limbs, 1)
            for j in range(1, limbs):
                store(out, i * limbs + j, 0)
    for f in range(count):
        level = load(factors, 3 * f)
        place = load(factors, 3 * f + 1)
        own = load(factors, 3 * f + 2)
        if f == 0 and own == limbs:
            for i in range(rows):
                for j in range(limbs):
                    store(out, i * limbs + j, load(load(block, i * depth + level), place + j))
        elif limbs == 1 and own == 1:
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

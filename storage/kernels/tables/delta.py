"""Making deltas and adding them to tables: encoded rows lifted, matches multiplied out, upserts."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    BUFFERS,
    FACTOR_CODE,
    FACTOR_LIMBS,
    FLAGS,
    HASHES,
    HASHES_CAPACITY,
    INDEX_ENTRY,
    INDEX_LIST,
    INDEXES,
    KEYS,
    LIMBS,
    MASK,
    MATCHES,
    MATCHES_CAPACITY,
    NULL_CODE,
    ORDER,
    ORDER_BYTES,
    ORDER_COUNT,
    ORDER_ENTRY,
    ORDER_INDEX,
    ORDER_KIND,
    OVERFLOW,
    RANKS,
    RESERVED_LOW,
    ROWS,
    SLOTS,
    SPILL,
    STEPS,
    TAIL,
    TEMPORARY,
    TEMPORARY_WORDS,
    USED,
    VALUES,
    WIDTH,
)
from sqlfront.storage.kernels.memory import load, load32, prefetch, product_overflows, realloc, store
from sqlfront.storage.kernels.numbers.limbs import copy_value, multiply
from sqlfront.storage.kernels.tables.hash_table import clear, find, reserve, upsert
from sqlfront.storage.kernels.tables.hashing import hash_places, hash_words
from sqlfront.storage.kernels.tables.hot_rows import gather_hot
from sqlfront.storage.kernels.tables.read_ahead import read_ahead
from sqlfront.storage.kernels.tables.waves import WAVE, bring_paths
from sqlfront.storage.kernels.tables.write_buffer import set_aside

_AHEAD = 12
_LARGE = 1 << 17
"""Words of a table's rows that do not stay in the processor's second cache: 1 MiB."""
_BLOCK = 64
"""Rows that `emit` makes at once."""


@kernel("int64(int64,int64,int64)")
def buffer(scratch, number, words):
    """The address of a scratch buffer with room for `words` words."""
    place = BUFFERS + 3 * number
    if load(scratch, place + 1) < words:
        store(scratch, place, realloc(load(scratch, place), 8 * words))
        store(scratch, place + 1, words)
    return load(scratch, place)


@kernel("void(int64,int64,int64)")
def reserve_scratch(scratch, hashes, matches):
    """Room for that many hashes and matches."""
    if load(scratch, HASHES_CAPACITY) < hashes:
        store(scratch, HASHES, realloc(load(scratch, HASHES), 8 * hashes))
        store(scratch, HASHES_CAPACITY, hashes)
    if load(scratch, MATCHES_CAPACITY) < matches:
        store(scratch, MATCHES, realloc(load(scratch, MATCHES), 16 * matches))
        store(scratch, MATCHES_CAPACITY, matches)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def lift(at, scratch, data, first, rows, sign):
    """Make the leaf's delta from rows of encoded columns whose last word is the weight.

    [LIFT, length, data width, keys, factors, limbs, predicate place or -1, copies place or -1, required: n, places...,
    key places..., factors: (kind, place, limbs)...]

    A row counts as often as the word at the copies place says, which is no NULL.
    """
    data_width = load(at, 2)
    keys = load(at, 3)
    factors = load(at, 4)
    limbs = load(at, 5)
    predicate = load(at, 6)
    copies = load(at, 7)
    required = load(at, 8)
    key_places = 9 + required
    factor_places = key_places + keys
    width = keys + (1 + factors) * limbs
    out = buffer(scratch, 0, width * rows)
    temporary = load(scratch, TEMPORARY)
    overflow = 0
    kept = 0
    for i in range(rows):
        source = data + (first + i) * data_width * 8
        keep = predicate < 0 or load(source, predicate) == 1
        for j in range(required):
            if load(source, load(at, 9 + j)) == NULL_CODE:
                keep = False
        if not keep:
            continue
        target = out + kept * width * 8
        weight = load(source, data_width - 1) * sign  # Undo runs the same rows with the sign turned.
        if copies >= 0:
            weight *= load(source, copies)
        for j in range(keys):
            store(target, j, load(source, load(at, key_places + j)))
        store(target, keys, weight)
        for j in range(1, limbs):
            store(target, keys + j, -1 if weight < 0 else 0)
        for f in range(factors):
            kind = load(at, factor_places + 3 * f)
            place = load(at, factor_places + 3 * f + 1)
            goal = keys + (1 + f) * limbs
            if kind == FACTOR_LIMBS:
                own = load(at, factor_places + 3 * f + 2)
                if own == 1 and limbs == 1:
                    value = load(source, place)
                    overflow |= product_overflows(value, weight)
                    store(target, goal, value * weight)
                else:
                    overflow |= multiply(target, goal, limbs, source, place, own, target, keys, limbs, temporary)
            else:
                code = load(source, place)
                value = 0
                if code != NULL_CODE and kind == FACTOR_CODE:
                    # The code of NULL is the least integer: the column's own least integer has a reserved code.
                    value = NULL_CODE if code == RESERVED_LOW else code
                elif code != NULL_CODE:
                    value = 1
                if limbs == 1:
                    overflow |= product_overflows(value, weight)
                    store(target, goal, value * weight)
                else:
                    store(temporary, TEMPORARY_WORDS - 1, value)
                    overflow |= multiply(
                        target, goal, limbs, temporary, TEMPORARY_WORDS - 1, 1, target, keys, limbs, temporary
                    )
        kept += 1
    if overflow != 0:
        store(scratch, FLAGS, load(scratch, FLAGS) | OVERFLOW)
    return kept


@kernel("void(int64,int64)")
def prefetch_row(table, h):
    """Bring the row near that the first slot of a hash points to; its slot has been brought near before."""
    slot = load(load(table, SLOTS), h & load(table, MASK))
    if slot != 0:
        size = load(table, WIDTH) * 8
        address = load(table, ROWS) + ((slot & 0xFFFFFFFF) - 1) * size
        prefetch(address)
        prefetch(address + size - 8)  # It may lie in two cache lines.


@kernel("void(int64,int64,int64)")
def bring(table, h, stage):
    """Bring near, one stage some time after the other, the slot of a hash (stage 0) and the row that it points to."""
    if stage == 0:
        prefetch(load(table, SLOTS) + (h & load(table, MASK)) * 8)
    elif stage == 1:
        prefetch_row(table, h)


@kernel("void(int64,int64,int64)")
def prefetch_rows(table, hashes, stride):
    """`prefetch_row` of a table and its groups; the hashes are `stride` words apart."""
    prefetch_row(table, load(hashes, 0))
    for x in range(load(table, INDEXES)):
        group = load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0)
        prefetch_row(group, load(hashes, (1 + x) * stride))


@kernel("int64(int64)")
def searched_index(table):
    """The index of a large table whose rows find their places along trees, by numbers; -1 if there is none, or if the
    rows are on disk, where some of the delta's may wait."""
    order = load(table, ORDER)
    if order == 0 or load(table, RANKS) > 0 or load(table, SPILL) != 0:
        return -1
    if load(table, USED) * load(table, WIDTH) < _LARGE:
        return -1
    for i in range(load(order, ORDER_COUNT)):
        if load(order, ORDER_ENTRY + 3 * i + 1) & ORDER_KIND >= ORDER_BYTES:
            return -1
    return load(order, ORDER_INDEX)


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def bring_places(table, scratch, index, hashes, delta, width, rows):
    """`bring_paths` for rows of a delta, by the hashes of their groups' keys."""
    entry = load(table, INDEX_LIST) + index * (INDEX_ENTRY + 32) * 8
    group = load(entry, 0)
    searches = load(scratch, TEMPORARY)
    steps = load(scratch, STEPS)
    for i in range(rows):
        row = delta + i * width * 8
        found = find(group, scratch, load(hashes, i), row, entry, INDEX_ENTRY)
        root = 0
        if found >= 0:
            root = load32(load(group, ROWS) + (found * load(group, WIDTH) + load(group, TAIL)) * 8, 2)
        store(searches, 2 * i, row)
        store(searches, 2 * i + 1, root)
    store(scratch, STEPS, steps)  # What is only brought near counts when it is looked up.
    bring_paths(table, load(table, ORDER), 0, searches, rows)


@kernel("void(int64,int64,int64,int64)")
def step_upsert(at, scratch, delta, rows):
    """[UPSERT, length, table]: add the delta to a table and its groups."""
    table = load(at, 2)
    keys = load(table, KEYS)
    width = keys + load(table, VALUES) * load(table, LIMBS)
    indexes = load(table, INDEXES)
    reserve(table, rows)
    reserve_scratch(scratch, rows * (1 + indexes), 0)
    hashes = load(scratch, HASHES)
    # Slots of all rows first, then rows some places ahead of their upserts: memory is read while others wait for it.
    for x in range(indexes):
        entry = load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8
        group = load(entry, 0)
        reserve(group, rows)
        group_slots = load(group, SLOTS)
        group_mask = load(group, MASK)
        for i in range(rows):
            h = hash_places(delta + i * width * 8, entry, INDEX_ENTRY, load(entry, 1))
            store(hashes, (1 + x) * rows + i, h)
            prefetch(group_slots + (h & group_mask) * 8)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    for i in range(rows):
        h = hash_words(delta + i * width * 8, keys)
        store(hashes, i, h)
        prefetch(slots + (h & mask) * 8)
    aside = set_aside(table, scratch, delta, hashes, rows)
    if aside:
        reserve(table, rows)  # What has waited may have taken the room.
    if read_ahead(table, hashes, rows) and not aside:
        gather_hot(table, hashes, rows)
    for x in range(indexes):
        read_ahead(load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0), hashes + (1 + x) * rows * 8, rows)
    for i in range(min(_AHEAD, rows)):
        prefetch_rows(table, hashes + i * 8, rows)
    searched = searched_index(table) if rows > 1 else -1
    overflow = 0
    for i in range(rows):
        if searched >= 0 and i % WAVE == 0:
            own = hashes + ((1 + searched) * rows + i) * 8
            bring_places(table, scratch, searched, own, delta + i * width * 8, width, min(WAVE, rows - i))
        if i + _AHEAD < rows:
            prefetch_rows(table, hashes + (i + _AHEAD) * 8, rows)
        if load(hashes, i) >= 0:
            overflow |= upsert(table, scratch, hashes + i * 8, rows, delta + i * width * 8)
    store(scratch, STEPS, load(scratch, STEPS) + rows)
    if overflow != 0:
        store(scratch, FLAGS, load(scratch, FLAGS) | OVERFLOW)


@kernel("int64(int64,int64,int64,int64)")
def step_aggregate(at, scratch, delta, rows):
    """[AGGREGATE, length, table, out buffer]: add up the delta's rows that have one key, in a table that is empty
    before and after; those whose values are all zero go."""
    table = load(at, 2)
    step_upsert(at, scratch, delta, rows)
    keys = load(table, KEYS)
    width = keys + load(table, VALUES) * load(table, LIMBS)
    used = load(table, USED)
    out = buffer(scratch, load(at, 3), max(1, width * used))
    kept = 0
    for row in range(used):
        address = load(table, ROWS) + row * load(table, WIDTH) * 8
        changed = False  # A count of 0 may stand beside sums that are not.
        for i in range(keys, width):
            changed = changed or load(address, i) != 0
        if changed:
            for i in range(width):
                store(out, kept * width + i, load(address, i))
            kept += 1
    clear(table)
    return kept


@kernel("void(int64,int64,int64,int64,int64)")
def step_scale(at, scratch, delta, width, rows):
    """[SCALE, length, keys, limbs, factor]: multiply all values of the delta by a number."""
    keys = load(at, 2)
    limbs = load(at, 3)
    factor = load(at, 4)
    temporary = load(scratch, TEMPORARY)
    store(temporary, TEMPORARY_WORDS - 1, factor)
    overflow = 0
    for i in range(rows):
        row = delta + i * width * 8
        for place in range(keys, width, limbs):
            if limbs == 1:
                value = load(row, place)
                overflow |= product_overflows(value, factor)
                store(row, place, value * factor)
            else:
                overflow |= multiply(row, place, limbs, row, place, limbs, temporary, TEMPORARY_WORDS - 1, 1, temporary)
    if overflow != 0:
        store(scratch, FLAGS, load(scratch, FLAGS) | OVERFLOW)


@kernel("int64(int64,int64,int64,int64)")
def gather_keys(at, first, row, scratch):
    """Collect the delta words a look-up needs: [n, places...] at `at[first]`; returns the address of the key."""
    temporary = load(scratch, TEMPORARY)
    for j in range(load(at, first)):
        store(temporary, j, load(row, load(at, first + 1 + j)))
    return temporary


@kernel("int64(int64,int64,int64,int64,int64)")
def emit_values(at, scratch, out, start, end):
    """The values of a block of `emit`'s rows; 1 if one does not fit, else 0."""
    keys = load(at, 1)
    values = load(at, 2)
    limbs = load(at, 3)
    delta_base = load(at, 4)
    delta_limbs = load(at, 5)
    table_base = load(at, 6)
    table_limbs = load(at, 7)
    width = keys + values * limbs
    matches = load(scratch, MATCHES)
    temporary = load(scratch, TEMPORARY)
    overflow = 0
    first = 8 + 2 * keys
    for v in range(values):
        a = load(at, first + 2 * v)
        b = load(at, first + 2 * v + 1)
        if a < 0:
            for i in range(start, end):
                store(out, i * width + keys + v * limbs, 1)
                for j in range(1, limbs):
                    store(out, i * width + keys + v * limbs + j, 0)
        elif b < 0:
            for i in range(start, end):
                overflow |= copy_value(
                    out,
                    i * width + keys + v * limbs,
                    limbs,
                    load(matches, 2 * i),
                    delta_base + a * delta_limbs,
                    delta_limbs,
                )
        elif limbs == 1 and delta_limbs == 1 and table_limbs == 1:
            for i in range(start, end):
                x = load(load(matches, 2 * i), delta_base + a)
                y = load(load(matches, 2 * i + 1), table_base + b)
                overflow |= product_overflows(x, y)
                store(out, i * width + keys + v, x * y)
        else:
            for i in range(start, end):
                overflow |= multiply(
                    out + i * width * 8,
                    keys + v * limbs,
                    limbs,
                    load(matches, 2 * i),
                    delta_base + a * delta_limbs,
                    delta_limbs,
                    load(matches, 2 * i + 1),
                    table_base + b * table_limbs,
                    table_limbs,
                    temporary,
                )
    return overflow


@kernel("void(int64,int64,int64,int64)")
def emit(at, scratch, out, found):
    """Make the next delta from matches of a delta row and a table row.

    [out buffer, out keys, out values, out limbs, delta keys, delta limbs, table keys, table limbs,
    key words: (0 delta | 1 table, place)..., values: (delta value or -1 for 1, table value or -1 for 1)...]
    """
    keys = load(at, 1)
    width = keys + load(at, 2) * load(at, 3)
    matches = load(scratch, MATCHES)
    overflow = 0
    # Column by column: the branch on where a value comes from is taken once for a block, which stays in the cache.
    for start in range(0, found, _BLOCK):
        end = min(start + _BLOCK, found)
        for j in range(keys):
            side = load(at, 8 + 2 * j)
            place = load(at, 9 + 2 * j)
            for i in range(start, end):
                store(out, i * width + j, load(load(matches, 2 * i + side), place))
        overflow |= emit_values(at, scratch, out, start, end)
    if overflow != 0:
        store(scratch, FLAGS, load(scratch, FLAGS) | OVERFLOW)

"""BOX_SUM: the sum of what lies within bounds of two orders at once, in O(log^2 entries) steps.

A table with sums over boxes notes each change of a row as an entry (see subtree_sums): a row that goes is an entry with
negative sums. New entries are few: the others are in runs, each of which has more entries than all later ones together.
When there are too many new ones, they become a run, with the entries of all runs that are no longer than what they are
put to: the logarithmic method (Bentley and Saxe 1980), O(log^2 entries) steps for an entry over time. Entries with one
key become one on the way, or none where their sums are 0. When there are twice as many as rows, all become one run.

Who reads makes the runs: nobody writes meanwhile, but others may read, and wait for a lock. Rows of a key that has few
are looked at one by one.
"""

from __future__ import annotations

from sqlfront.storage.kernels.boxes.runs import add_prefix, add_sums, make_run
from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    BOX_BYTES,
    BOX_FIRST,
    BOX_LOCK,
    BOX_NEW,
    BOX_RUN,
    BOX_RUNS,
    BOXES,
    KEYS,
    LIMBS,
    LINKS,
    LIST_AT,
    LIST_USED,
    LIVE,
    MATCHES,
    ROWS,
    RUN_BYTES,
    RUN_ENTRIES,
    RUN_SECOND,
    RUN_SIZE,
    STEPS,
    TAIL,
    UNMADE,
    USED,
    VALUES,
    WIDTH,
)
from sqlfront.storage.kernels.memory import (
    add_shared,
    free,
    load,
    load32,
    load_shared,
    memcpy,
    or_shared,
    realloc,
    sched_yield,
    store,
)
from sqlfront.storage.kernels.numbers.limbs import add_wide
from sqlfront.storage.kernels.tables.delta import buffer, gather_keys, reserve_scratch
from sqlfront.storage.kernels.tables.extreme_search import within
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_words, same_words
from sqlfront.storage.kernels.tables.sorted_groups import sort_key, sort_pairs
from sqlfront.storage.kernels.tables.subtree_sums import entry_words

FEW = 32
"""New entries that are looked at one by one."""
FEW_MEMBERS = 64
"""Rows of one key that are looked at one by one."""
# Where the operation has what it reads; ends of a search that are no bounds.
_SUMS, _LOWER, _UPPER, _SECOND_LOWER, _SECOND_UPPER, _GROUP, _INDEX, _COUNT = 4, 5, 6, 7, 8, 9, 10, 11
_KEY_REACHED, _KEY_PASSED = 0, 1


@kernel("int64(int64,int64,int64,int64,int64)")
def step_box_sum(at, scratch, delta, width, rows):
    """[BOX_SUM, length, table, emit place, sums' buffer, place of the first order's lower bound, of its upper bound, of
    the second order's (0: none), group (0: there is no key), index, n, places of the key..., places of it in the
    table..., tests: as those of RANGE].

    Match each delta row with the sum of the table's rows with its key within the bounds, if it is not 0: values
    without a key, of one limb more than the table's. O(log^2 rows) for each row.
    """
    table = load(at, 2)
    make_runs(table, scratch)
    reserve_scratch(scratch, 0, rows)
    matches = load(scratch, MATCHES)
    words = entry_words(table) - load(table, KEYS)
    sums = buffer(scratch, load(at, _SUMS), words * rows)
    found = 0
    for i in range(rows):
        row = delta + i * width * 8
        out = sums + found * words * 8
        for j in range(words):
            store(out, j, 0)
        add_box(at, scratch, row, out)
        if is_any(out, words):
            store(matches, 2 * found, row)
            store(matches, 2 * found + 1, out)
            found += 1
    return found


@kernel("void(int64,int64,int64,int64)")
def add_box(at, scratch, row, sums):
    """Add to `sums` the rows within a delta row's bounds."""
    group = load(at, _GROUP)
    if group != 0:
        h = hash_words(gather_keys(at, _COUNT, row, scratch), load(at, _COUNT))
        group_row = find(group, scratch, h, row, at, _COUNT + 1)
        tail = load(group, ROWS) + (group_row * load(group, WIDTH) + load(group, TAIL)) * 8
        size = 0 if group_row < 0 else load32(tail, 1)
        if size <= FEW_MEMBERS:
            add_members(at, 0 if size == 0 else load32(tail, 0), row, sums)
            store(scratch, STEPS, load(scratch, STEPS) + 1 + size)
            return
    boxes = load(load(at, 2), BOXES)
    add_new(at, row, sums)
    for number in range(load(boxes, BOX_RUNS)):
        add_within(at, scratch, load(boxes, BOX_RUN + number), row, sums)
    store(scratch, STEPS, load(scratch, STEPS) + 1 + load(boxes + BOX_NEW * 8, LIST_USED))


@kernel("void(int64,int64,int64,int64)")
def add_members(at, member, row, sums):
    """Add to `sums` the rows within a delta row's bounds, of those from `member` on in the list of a group."""
    table = load(at, 2)
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    after = 2 * (load(table, LINKS) + 2 * load(at, _INDEX))
    while member != 0:
        address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
        if is_inside(at, row, address):
            for v in range(load(table, VALUES)):
                add_wide(sums, v * (limbs + 1), limbs + 1, address, keys + v * limbs, limbs, 0)
        member = load32(address, after)


@kernel("void(int64,int64,int64)")
def add_new(at, row, sums):
    """Add to `sums` the new entries within a delta row's bounds."""
    table = load(at, 2)
    new = load(table, BOXES) + BOX_NEW * 8
    width = entry_words(table) * 8
    for i in range(load(new, LIST_USED)):
        entry = load(new, LIST_AT) + i * width
        if compare_key(at, row, entry) == 0 and is_inside(at, row, entry):
            add_sums(table, sums, entry, load(table, KEYS), 0)


@kernel("boolean(int64,int64,int64)")
def is_inside(at, row, entry):
    """Whether an entry, or a row, is within all bounds."""
    inside = True
    for bound in range(_LOWER, _GROUP):
        inside = inside and meets_bound(at, bound, row, entry)
    return inside


@kernel("void(int64,int64,int64,int64,int64)")
def add_within(at, scratch, run, row, sums):
    """Add to `sums` the entries of a run within a delta row's bounds."""
    table = load(at, 2)
    entries = load(run, RUN_ENTRIES)
    first = 0
    end = load(run, RUN_SIZE)
    if load(at, _COUNT) > 0:
        first = search(at, scratch, entries, 0, row, first, end, _KEY_REACHED)
        end = search(at, scratch, entries, 0, row, first, end, _KEY_PASSED)
    if load(at, _LOWER) != 0:
        first = search(at, scratch, entries, 0, row, first, end, _LOWER)
    if load(at, _UPPER) != 0:
        end = search(at, scratch, entries, 0, row, first, end, _UPPER)
    if first >= end:
        return
    second = load(run, RUN_SECOND)
    places = load(run, RUN_SIZE)
    if load(at, _SECOND_UPPER) != 0:
        places = search(at, scratch, entries, second, row, 0, places, _SECOND_UPPER)
    add_prefix(table, scratch, run, end, places, sums, 0)
    add_prefix(table, scratch, run, first, places, sums, 1)
    if load(at, _SECOND_LOWER) != 0:
        places = search(at, scratch, entries, second, row, 0, places, _SECOND_LOWER)
        add_prefix(table, scratch, run, end, places, sums, 1)
        add_prefix(table, scratch, run, first, places, sums, 0)


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def search(at, scratch, entries, listed, row, low, high, end):
    """The place from `low` to `high`, of entries as they lie or (not 0) as they are `listed`, at which one of these
    ends comes: a bound that entries begin to pass, or to fail; the delta row's key; what comes after that."""
    width = entry_words(load(at, 2)) * 8
    steps = 0
    while low < high:
        middle = (low + high) // 2
        entry = entries + (middle if listed == 0 else load32(listed, middle)) * width
        if end == _KEY_REACHED:
            is_behind = compare_key(at, row, entry) <= 0
        elif end == _KEY_PASSED:
            is_behind = compare_key(at, row, entry) < 0
        else:
            is_behind = meets_bound(at, end, row, entry) == (end in (_LOWER, _SECOND_LOWER))
        if is_behind:
            high = middle
        else:
            low = middle + 1
        steps += 1
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return low


@kernel("int64(int64,int64,int64)")
def compare_key(at, row, entry):
    """-1, 0 or 1: whether a delta row's key comes before that of an entry."""
    count = load(at, _COUNT)
    for i in range(count):
        x = load(row, load(at, _COUNT + 1 + i))
        y = load(entry, load(at, _COUNT + 1 + count + i))
        if x != y:
            return -1 if x < y else 1
    return 0


@kernel("boolean(int64,int64,int64,int64)")
def meets_bound(at, bound, row, entry):
    """Whether an entry passes the test of a bound, if there is one."""
    place = load(at, bound)
    return place == 0 or within(at + place * 8, row, entry)


@kernel("void(int64,int64)")
def make_runs(table, scratch):
    """Make runs of new entries if they are too many, or of the table's rows if there are no entries yet."""
    boxes = load(table, BOXES)
    new = boxes + BOX_NEW * 8
    used = load_shared(new, LIST_USED)
    if used >= 0 and used <= FEW:
        return
    while or_shared(boxes, BOX_LOCK, 1) != 0:
        sched_yield()
    used = load(new, LIST_USED)
    if used == UNMADE:
        add_run(table, scratch, copied_rows(table), load(table, USED), 0)
        add_shared(new, LIST_USED, -UNMADE)
    elif used > FEW:
        add_run(table, scratch, 0, 0, used)
        add_shared(new, LIST_USED, -used)
    add_shared(boxes, BOX_LOCK, -1)


@kernel("int64(int64)")
def copied_rows(table):
    """An entry for each row, free ones too, whose sums are 0."""
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    width = entry_words(table)
    made = realloc(0, max(1, load(table, USED)) * width * 8)
    for row in range(load(table, USED)):
        address = load(table, ROWS) + row * load(table, WIDTH) * 8
        entry = made + row * width * 8
        memcpy(entry, address, keys * 8)
        for i in range(keys, width):
            store(entry, i, 0)
        for v in range(load(table, VALUES)):
            add_wide(entry, keys + v * (limbs + 1), limbs + 1, address, keys + v * limbs, limbs, 0)
    return made


@kernel("void(int64,int64,int64,int64,int64)")
def add_run(table, scratch, rows, count, used):
    """Make a run of `count` entries at `rows`, which it gives back, of the `used` first new ones, and of runs."""
    boxes = load(table, BOXES)
    runs = load(boxes, BOX_RUNS)
    kept = runs
    whole = count + used
    total = whole
    for i in range(runs - 1, -1, -1):
        is_no_longer = load(load(boxes, BOX_RUN + i), RUN_SIZE) <= whole
        whole += load(load(boxes, BOX_RUN + i), RUN_SIZE)
        if is_no_longer:
            kept = i
            total = whole
    if whole > 2 * load(table, LIVE) + FEW:
        kept = 0
        total = whole
    pairs = realloc(0, max(1, total) * 2 * 16)
    taken = pair_up(table, pairs, 0, rows, count)
    taken = pair_up(table, pairs, taken, load(boxes + BOX_NEW * 8, LIST_AT), used)
    for i in range(kept, runs):
        run = load(boxes, BOX_RUN + i)
        taken = pair_up(table, pairs, taken, load(run, RUN_ENTRIES), load(run, RUN_SIZE))
    sort_pairs(load(boxes, BOX_FIRST), pairs, total, pairs + total * 16)
    left = join_equal(table, pairs, total)
    made = make_run(table, scratch, pairs, left) if left > 0 else 0
    free(pairs)
    free(rows)
    for i in range(kept, runs):
        store(boxes, BOX_BYTES, load(boxes, BOX_BYTES) - load(load(boxes, BOX_RUN + i), RUN_BYTES))
        free(load(boxes, BOX_RUN + i))
    if made != 0:
        store(boxes, BOX_RUN + kept, made)
        store(boxes, BOX_BYTES, load(boxes, BOX_BYTES) + load(made, RUN_BYTES))
        kept += 1
    store(boxes, BOX_RUNS, kept)


@kernel("int64(int64,int64,int64,int64,int64)")
def pair_up(table, pairs, taken, entries, count):
    """Append pairs (sort key, address) of entries to `taken` ones; how many there are then."""
    first = load(load(table, BOXES), BOX_FIRST)
    width = entry_words(table) * 8
    for i in range(count):
        store(pairs, 2 * (taken + i), sort_key(first, entries + i * width))
        store(pairs, 2 * (taken + i) + 1, entries + i * width)
    return taken + count


@kernel("int64(int64,int64,int64)")
def join_equal(table, pairs, count):
    """Add up entries with one key, which are neighbours, and leave those out whose sums are 0; how many are left."""
    keys = load(table, KEYS)
    words = entry_words(table) - keys
    left = 0
    i = 0
    while i < count:
        entry = load(pairs, 2 * i + 1)
        j = i + 1
        while j < count and same_words(entry, load(pairs, 2 * j + 1), keys):
            add_sums(table, entry + keys * 8, load(pairs, 2 * j + 1), keys, 0)
            j += 1
        if is_any(entry + keys * 8, words):
            store(pairs, 2 * left, load(pairs, 2 * i))
            store(pairs, 2 * left + 1, entry)
            left += 1
        i = j
    return left


@kernel("boolean(int64,int64)")
def is_any(sums, words):
    """Whether a word of sums is not 0."""
    found = False
    for i in range(words):
        found = found or load(sums, i) != 0
    return found

"""Sorting the groups of an index at once: what a table is built with, instead of one search for each row.

While a table is *unsorted* (its order list names index -1 - x instead of x), its ordered index is a plain one.
`sort_groups` then sorts each group's rows by pairs (sort key, address) and grows its tree from them: the stack holds
the tree's right spine, and a row becomes the parent of what has less priority (Gabow, Bentley and Tarjan 1984). The
tree is a function of the rows, so it is the one that insertions make. O(rows log group), memory read in order.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    INDEX_ENTRY,
    INDEX_LIST,
    KEYS,
    LIMBS,
    LINKS,
    LIVE,
    NULL_CODE,
    ORDER,
    ORDER_BYTES,
    ORDER_DESCENDING,
    ORDER_ENTRY,
    ORDER_HIGH,
    ORDER_INDEX,
    ORDER_KIND,
    ORDER_LOW_WORD,
    ORDER_NULLS_LAST,
    ROWS,
    SUMMARIES,
    SUMS,
    TAIL,
    USED,
    WIDTH,
)
from sqlfront.storage.kernels.memory import calloc, free, load, load32, memcpy, prefetch, realloc, store, store32
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.tables.ordered_group import priority
from sqlfront.storage.kernels.tables.row_order import compare_rows
from sqlfront.storage.kernels.tables.subtree_summaries import begin_summaries, combine_summaries
from sqlfront.storage.kernels.tables.subtree_sums import add_below, add_own

_AHEAD = 12
_RUN = 8
_GREATEST = 9223372036854775807


@kernel("void(int64)")
def turn_order(table):
    """Keep no order from now on, or again. The table, which is not ranked, is empty, or `sort_groups` has sorted it."""
    order = load(table, ORDER)
    store(order, ORDER_INDEX, -1 - load(order, ORDER_INDEX))


@kernel("int64(int64,int64)")
def sort_key(order, address):
    """A word such that rows with different ones are in their order; rows with equal ones have to be compared."""
    entry = order + ORDER_ENTRY * 8
    flags = load(entry, 1)
    kind = flags & ORDER_KIND
    if kind >= ORDER_BYTES:
        return 0
    x = load(address, load(entry, 0))
    if kind == ORDER_LOW_WORD:
        x ^= NULL_CODE  # Unsigned order as signed order.
    elif x == NULL_CODE:
        return _GREATEST if flags & ORDER_NULLS_LAST else NULL_CODE
    elif load(entry, 2) != 0:
        x = NULL_CODE if x == load(entry, 2) else x
        x -= 1 if kind == ORDER_HIGH else 0
    return ~x if flags & ORDER_DESCENDING else x


@kernel("boolean(int64,int64,int64)")
def comes_after(order, a, b):
    """Whether the pair at `a` has to stand behind the pair at `b`."""
    x = load(a, 0)
    y = load(b, 0)
    if x == y:
        return compare_rows(order, load(a, 1), load(b, 1)) > 0
    return x > y


@kernel("void(int64,int64,int64,int64,int64)")
def merge_runs(order, source, middle, end, target):
    """Merge two sorted runs of pairs, from `source` to `middle` and to `end`, which are addresses, to `target`."""
    left = source
    right = middle
    while left < middle and right < end:
        x = load(left, 0)
        y = load(right, 0)
        second = 1 if x > y else 0  # Arithmetic instead of a branch: which run is next cannot be predicted.
        if x == y:
            second = 1 if compare_rows(order, load(left, 1), load(right, 1)) > 0 else 0
        taken = left + second * (right - left)
        store(target, 0, load(taken, 0))
        store(target, 1, load(taken, 1))
        left += 16 - 16 * second
        right += 16 * second
        target += 16
    memcpy(target, left, middle - left)
    memcpy(target + (middle - left), right, end - right)


@kernel("void(int64,int64,int64,int64)")
def sort_pairs(order, pairs, count, spare):
    """Sort pairs (sort key, address of a row) by an order list; `spare` has as much room. O(count log count)."""
    for start in range(0, count, _RUN):
        for i in range(start + 1, min(start + _RUN, count)):
            x = load(pairs, 2 * i)
            address = load(pairs, 2 * i + 1)
            store(spare, 0, x)
            store(spare, 1, address)
            j = i
            while j > start and comes_after(order, pairs + (j - 1) * 16, spare):
                store(pairs, 2 * j, load(pairs, 2 * j - 2))
                store(pairs, 2 * j + 1, load(pairs, 2 * j - 1))
                j -= 1
            store(pairs, 2 * j, x)
            store(pairs, 2 * j + 1, address)
    source = pairs
    target = spare
    run = _RUN
    while run < count:
        for start in range(0, count, 2 * run):
            middle = source + min(start + run, count) * 16
            end = source + min(start + 2 * run, count) * 16
            # Runs that follow each other already are copied.
            if middle == end or not comes_after(order, middle - 16, middle):
                memcpy(target + start * 16, source + start * 16, end - source - start * 16)
            else:
                merge_runs(order, source + start * 16, middle, end, target + start * 16)
        source, target = target, source
        run *= 2
    if source != pairs:
        memcpy(pairs, source, count * 16)


@kernel("void(int64,int64,int64)")
def augment(table, address, sides):
    """Compute the subtree sums and summaries of a row, whose children know theirs."""
    if load(table, SUMMARIES) != 0:
        combine_summaries(table, address)
    if load(table, SUMS) == 0:
        return
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    into = address + (load(table, TAIL) + 1) * 8
    for i in range(load(table, SUMS) * (load(table, LIMBS) + 1)):
        store(into, i, 0)
    add_own(table, into, address, 0)
    for side in range(2):
        child = load32(address, sides + side)
        if child != 0:
            add_below(table, into, rows + (child - 1) * width, 0)


@kernel("void(int64,int64,int64,int64,int64,int64)")
def grow_tree(table, pairs, count, stack, place, tail):
    """Make the list and the tree of a group of its `count` sorted pairs; `stack` has room for as many."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    sides = 2 * load(table, TAIL)
    augmented = load(table, SUMS) > 0 or load(table, SUMMARIES) != 0
    depth = 0
    before = 0
    for i in range(count):
        if i + _AHEAD < count:
            ahead = load(pairs, 2 * (i + _AHEAD) + 1)
            prefetch(ahead)
            prefetch(ahead + width - 8)
        address = load(pairs, 2 * i + 1)
        node = (address - rows) // width + 1
        own = priority(address, keys)
        below = 0
        # What has less priority leaves the right spine: it is whole, and the row's left subtree.
        while depth > 0 and load(stack, 2 * depth - 1) < own:
            depth -= 1
            below = load(stack, 2 * depth)
            if augmented:
                augment(table, rows + (below - 1) * width, sides)
        above = load(stack, 2 * depth - 2) if depth > 0 else 0
        store32(address, place, 0)
        store32(address, place + 1, before)
        store32(address, place + 3, above)
        store32(address, sides, below)
        store32(address, sides + 1, 0)
        if load(table, SUMMARIES) != 0:
            begin_summaries(table, address, before)
        if below != 0:
            store32(rows + (below - 1) * width, place + 3, node)
        if above != 0:
            store32(rows + (above - 1) * width, sides + 1, node)
        if before != 0:
            store32(rows + (before - 1) * width, place, node)
        store(stack, 2 * depth, node)
        store(stack, 2 * depth + 1, own)
        depth += 1
        before = node
    store32(tail, 2, load(stack, 0))
    first = load(pairs, 1)
    store32(tail, 0, (first - rows) // width + 1)
    store32(first, place + 1, before)
    while augmented and depth > 0:
        depth -= 1
        augment(table, rows + (load(stack, 2 * depth) - 1) * width, sides)


@kernel("void(int64,int64,int64)")
def sort_groups(table, part, parts):
    """Sort the groups of one of so many parts of what has been left unsorted. The table has been swept: its live rows
    are those with a count."""
    order = load(table, ORDER)
    index = -1 - load(order, ORDER_INDEX)
    group = load(load(table, INDEX_LIST) + index * (INDEX_ENTRY + 32) * 8, 0)
    place = 2 * (load(table, LINKS) + 2 * index)
    group_width = load(group, WIDTH) * 8
    tails = load(group, ROWS) + load(group, TAIL) * 8
    ends = calloc(load(group, USED) + 1, 8)
    first = -1
    groups = 0
    before = 0
    total = 0
    largest = 1
    for g in range(load(group, USED)):
        size = load32(tails + g * group_width, 1)
        # A part has the groups that begin within its share of the rows.
        if before * parts // max(1, load(table, LIVE)) == part:
            first = g if first < 0 else first
            groups = g + 1
            store(ends, g, total)
            total += size
            largest = max(largest, size)
        before += size
    pairs = realloc(0, max(1, total) * 16)
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    for row in range(load(table, USED) if total > 0 else 0):
        address = rows + row * width
        g = load32(address, place + 2)
        if g >= first and g < groups and sign_of(address, keys, limbs) != 0:
            i = load(ends, g)
            store(pairs, 2 * i, sort_key(order, address))
            store(pairs, 2 * i + 1, address)
            store(ends, g, i + 1)
    spare = realloc(0, largest * 16)
    start = 0
    for g in range(max(0, first), groups):
        end = load(ends, g)
        if end > start:
            sort_pairs(order, pairs + start * 16, end - start, spare)
            grow_tree(table, pairs + start * 16, end - start, spare, place, tails + g * group_width)
        start = end
    free(spare)
    free(pairs)
    free(ends)

"""Runs: sets of entries that never change. Any prefix of a run in two orders is added up in O(log entries) steps.

An entry is the key words of a table's row and sums, of one limb more than the row's values. A run has its entries
sorted by their first order, which gives each a position, and the positions sorted by the entries' second order. Above
them is a tree of blocks of positions, each of half its parent's size, down to LEAF: a wavelet tree (Chazelle 1988;
Grossi, Gupta and Vitter 2003). A block lists its entries in the second order, and with each of them how many up to it
lie in the block's left half, and their sums. So one way down adds up what comes before a position in the first order
and before a place in the second. O(entries * log entries) words.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    BOX_SECOND,
    BOXES,
    KEYS,
    LIMBS,
    RUN_BYTES,
    RUN_ENTRIES,
    RUN_HEADER,
    RUN_LEAVES,
    RUN_LEVELS,
    RUN_ROOT,
    RUN_SECOND,
    RUN_SIZE,
    STEPS,
    VALUES,
)
from sqlfront.storage.kernels.memory import free, load, load32, memcpy, realloc, store, store32
from sqlfront.storage.kernels.numbers.limbs import add_wide
from sqlfront.storage.kernels.tables.huge_pages import use_huge_pages
from sqlfront.storage.kernels.tables.sorted_groups import sort_key, sort_pairs
from sqlfront.storage.kernels.tables.subtree_sums import entry_words

LEAF = 16
"""Positions of the smallest blocks, whose entries are looked at one by one."""


@kernel("void(int64,int64,int64,int64,int64)")
def add_sums(table, into, entry, place, negative):
    """Add (or with `negative` take) the sums at word `place` of `entry` to those at the address `into`."""
    limbs = load(table, LIMBS) + 1
    for v in range(load(table, VALUES)):
        add_wide(into, v * limbs, limbs, entry, place + v * limbs, limbs, negative)


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def add_prefix(table, scratch, run, end, places, sums, negative):
    """Add to `sums` (or with `negative` take) the entries before position `end` among the first `places` ones of the
    second order."""
    words = 1 + entry_words(table) - load(table, KEYS)
    size = load(run, RUN_ROOT)
    level = load(run, RUN_LEVELS)
    start = 0
    steps = 0
    while size > LEAF and places > 0 and end > start:
        size //= 2
        node = level + (start + places - 1) * words * 8
        if end >= start + size:
            add_sums(table, sums, node, 1, negative)
            places -= load(node, 0)
            start += size
        else:
            places = load(node, 0)
        level += load(run, RUN_SIZE) * words * 8
        steps += 1
    for i in range(start, start + places if end > start else start):
        node = load(run, RUN_LEAVES) + i * words * 8
        if load(node, 0) < end:
            add_sums(table, sums, node, 1, negative)
        steps += 1
    store(scratch, STEPS, load(scratch, STEPS) + steps)


@kernel("int64(int64,int64)")
def new_run(table, count):
    """A run with room for so many entries."""
    root = LEAF
    levels = 0
    while root < count:
        root *= 2
        levels += 1
    width = entry_words(table)
    second = (count + 1) // 2 * 8
    words = 1 + width - load(table, KEYS)
    size = RUN_HEADER * 8 + count * width * 8 + second + (levels + 1) * count * words * 8
    run = realloc(0, size)
    use_huge_pages(run, size)
    store(run, RUN_SIZE, count)
    store(run, RUN_ROOT, root)
    store(run, RUN_BYTES, size)
    store(run, RUN_ENTRIES, run + RUN_HEADER * 8)
    store(run, RUN_SECOND, load(run, RUN_ENTRIES) + count * width * 8)
    store(run, RUN_LEVELS, load(run, RUN_SECOND) + second)
    store(run, RUN_LEAVES, load(run, RUN_LEVELS) + levels * count * words * 8)
    return run


@kernel("int64(int64,int64,int64,int64)")
def make_run(table, scratch, pairs, count):
    """A run of entries, which differ in their keys, by their pairs (sort key, address) in the first order.

    O(count log count) steps.
    """
    run = new_run(table, count)
    width = entry_words(table) * 8
    entries = load(run, RUN_ENTRIES)
    second = load(load(table, BOXES), BOX_SECOND)
    sorted_by = realloc(0, 2 * count * 16)
    for i in range(count):
        entry = entries + i * width
        memcpy(entry, load(pairs, 2 * i + 1), width)
        store(sorted_by, 2 * i, sort_key(second, entry))
        store(sorted_by, 2 * i + 1, entry)
    sort_pairs(second, sorted_by, count, sorted_by + count * 16)
    for i in range(count):
        store32(load(run, RUN_SECOND), i, (load(sorted_by, 2 * i + 1) - entries) // width)
    free(sorted_by)
    steps = count + divide_blocks(table, run)
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return run


@kernel("int64(int64,int64)")
def divide_blocks(table, run):
    """Make the levels of a run, and the smallest blocks, from its entries in the second order. Returns the steps."""
    keys = load(table, KEYS)
    width = entry_words(table)
    words = 1 + width - keys
    count = load(run, RUN_SIZE)
    listed = load(run, RUN_LEAVES)
    for i in range(count):
        position = load32(load(run, RUN_SECOND), i)
        store(listed, i * words, position)
        memcpy(listed + (i * words + 1) * 8, load(run, RUN_ENTRIES) + (position * width + keys) * 8, (words - 1) * 8)
    size = load(run, RUN_ROOT)
    level = load(run, RUN_LEVELS)
    right = realloc(0, count * words * 8)
    steps = 0
    while size > LEAF:
        for start in range(0, count, size):
            first = start * words * 8
            divide_block(table, level + first, listed + first, min(size, count - start), start + size // 2, right)
        level += count * words * 8
        size //= 2
        steps += count
    free(right)
    return steps


@kernel("void(int64,int64,int64,int64,int64,int64)")
def divide_block(table, nodes, listed, count, middle, right):
    """Make a block's nodes: how many of what is listed up to there are before the position `middle`, and their sums.
    These are listed first then, in the order in which they were, and the others after them. `right` is room for those.
    """
    words = 1 + entry_words(table) - load(table, KEYS)
    lefts = 0
    for i in range(count):
        own = listed + i * words * 8
        node = nodes + i * words * 8
        if i > 0:
            memcpy(node, node - words * 8, words * 8)
        else:
            for j in range(words):
                store(node, j, 0)
        if load(own, 0) < middle:
            add_sums(table, node + 8, own, 1, 0)
            if i > lefts:
                memcpy(listed + lefts * words * 8, own, words * 8)
            lefts += 1
            store(node, 0, lefts)
        else:
            memcpy(right + (i - lefts) * words * 8, own, words * 8)
    memcpy(listed + lefts * words * 8, right, (count - lefts) * words * 8)

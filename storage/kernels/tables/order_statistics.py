"""Order statistics of ordered groups with subtree sums: who stands at a position, and what lies before a row.

A position counts copies: a row that is there three times stands at three positions. A row's position is counted along
its way up, and the row at a position, or the sums before it, are found along the subtrees' counts (Cormen et al.,
*Introduction to Algorithms*, chapter on augmenting data structures): O(log group) expected for each. Groups of peers
are counted and found likewise, along the subtree summaries (subtree_summaries).
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, LINKS, ORDER, ORDER_INDEX, ROWS, STEPS, SUMS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.row_order import compare_rows
from sqlfront.storage.kernels.tables.subtree_summaries import (
    begins_group,
    extreme_below,
    groups_below,
    summary_order,
)
from sqlfront.storage.kernels.tables.subtree_sums import add_below, add_own


@kernel("int64(int64,int64)")
def copies_below(table, node):
    """The copies of all rows of the subtree at `node` (0: none)."""
    if node == 0:
        return 0
    return load(load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8, load(table, TAIL) + 1)


@kernel("void(int64,int64,int64,int64,int64)")
def count_copies(table, group, groups, rows, out):
    """The copies of all rows of each ordered group, whose row is at groups[i] (0: no group)."""
    root = 2 * load(group, TAIL) + 2
    for i in range(rows):
        address = load(groups, i)
        store(out, i, 0 if address == 0 else copies_below(table, load32(address, root)))


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def locate(table, group, addresses, copies, rows, scratch, out):
    """Where copy number copies[i] of the row at addresses[i] stands: the address of its group's row, its position
    there, the copies of the whole group; three words each."""
    base = load(table, ROWS)
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    sides = 2 * load(table, TAIL)
    member = 2 * (load(table, LINKS) + 2 * load(load(table, ORDER), ORDER_INDEX)) + 2
    root = 2 * load(group, TAIL) + 2
    steps = 0
    for i in range(rows):
        address = load(addresses, i)
        owner = load(group, ROWS) + load32(address, member) * load(group, WIDTH) * 8
        node = (address - base) // width + 1
        position = load(copies, i) + copies_below(table, load32(address, sides))
        parent = load32(address, member + 1)
        while parent != 0:
            steps += 1
            address = base + (parent - 1) * width
            left = load32(address, sides)
            if left != node:
                position += load(address, keys) + copies_below(table, left)
            node = parent
            parent = load32(address, member + 1)
        store(out, 3 * i, owner)
        store(out, 3 * i + 1, position)
        store(out, 3 * i + 2, copies_below(table, load32(owner, root)))
    store(scratch, STEPS, load(scratch, STEPS) + steps + rows)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def add_before(table, node, position, into, negative, scratch):
    """Add (or with `negative` take) the sums of the rows of the tree at `node` that stand wholly before a position.
    Returns how many copies of the next row also do."""
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    sides = 2 * load(table, TAIL)
    steps = 0
    while node != 0 and position > 0:
        steps += 1
        address = load(table, ROWS) + (node - 1) * width
        left = load32(address, sides)
        before = copies_below(table, left)
        if position < before:
            node = left
        else:
            if left != 0:
                add_below(table, into, load(table, ROWS) + (left - 1) * width, negative)
            position -= before
            node = 0
            if position >= load(address, keys):
                add_own(table, into, address, negative)
                position -= load(address, keys)
                node = load32(address, sides + 1)
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return position


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def frame_sums(table, group, groups, starts, ends, rows, scratch, out):
    """The sums of each ordered group's copies from a position to before another, SUMS values of a limb more each.

    Returns how many positions stand within the copies of a row: of that row's copies, none are in the sums.
    """
    words = load(table, SUMS) * (load(table, LIMBS) + 1)
    root = 2 * load(group, TAIL) + 2
    parted = 0
    for i in range(rows):
        into = out + i * words * 8
        for j in range(words):
            store(into, j, 0)
        node = 0 if load(groups, i) == 0 else load32(load(groups, i), root)
        size = copies_below(table, node)
        if add_before(table, node, min(load(ends, i), size), into, 0, scratch) > 0:
            parted += 1
        if add_before(table, node, min(load(starts, i), size), into, 1, scratch) > 0:
            parted += 1
    store(scratch, STEPS, load(scratch, STEPS) + rows)
    return parted


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64)")
def select(table, group, groups, positions, rows, scratch, out, copies):
    """The address of the row at a position of each ordered group, 0 where there is none; `copies` gets the number, from
    0, of the row's copy that stands there. `groups` are addresses of groups' rows, 0 for an empty group."""
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    sides = 2 * load(table, TAIL)
    root = 2 * load(group, TAIL) + 2
    steps = 0
    for i in range(rows):
        node = 0 if load(groups, i) == 0 else load32(load(groups, i), root)
        left = load(positions, i)
        found = 0
        if left < 0:
            node = 0
        while node != 0 and found == 0:
            steps += 1
            address = load(table, ROWS) + (node - 1) * width
            before = copies_below(table, load32(address, sides))
            if left < before:
                node = load32(address, sides)
            elif left - before < load(address, keys):
                left -= before
                found = address
            else:
                left -= before + load(address, keys)
                node = load32(address, sides + 1)
        store(out, i, found)
        store(copies, i, left if found != 0 else 0)
    store(scratch, STEPS, load(scratch, STEPS) + steps + rows)


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def positions_of(table, group, groups, probes, rows, order, outcomes, scratch, out):
    """How many copies of each ordered group compare with a probe as `outcomes` (0: less, 1: less or equal) says.

    A probe is the address of words that lie as in a row of the table; `order` is an order list whose items are the
    first ones of the table's.
    """
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    sides = 2 * load(table, TAIL)
    root = 2 * load(group, TAIL) + 2
    steps = 0
    for i in range(rows):
        node = 0 if load(groups, i) == 0 else load32(load(groups, i), root)
        found = 0
        while node != 0:
            steps += 1
            address = load(table, ROWS) + (node - 1) * width
            if compare_rows(order, address, load(probes, i)) < outcomes:
                found += copies_below(table, load32(address, sides)) + load(address, keys)
                node = load32(address, sides + 1)
            else:
                node = load32(address, sides)
        store(out, i, found)
    store(scratch, STEPS, load(scratch, STEPS) + steps + rows)


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64)")
def peers_before(table, group, groups, probes, rows, number, scratch, out):
    """How many groups of peers, by a summary, come before each probe in an ordered group. A probe is the address of
    words that lie as in a row of the table."""
    width = load(table, WIDTH) * 8
    sides = 2 * load(table, TAIL)
    root = 2 * load(group, TAIL) + 2
    order = summary_order(table, number)
    steps = 0
    for i in range(rows):
        node = 0 if load(groups, i) == 0 else load32(load(groups, i), root)
        found = 0
        while node != 0:
            steps += 1
            address = load(table, ROWS) + (node - 1) * width
            if compare_rows(order, address, load(probes, i)) < 0:
                found += groups_below(table, node, number)
                node = load32(address, sides + 1)
                found -= groups_below(table, node, number)
            else:
                node = load32(address, sides)
        store(out, i, found)
    store(scratch, STEPS, load(scratch, STEPS) + steps + rows)


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64)")
def peer_starts(table, group, groups, wanted, rows, number, scratch, out):
    """The position of the first row of the group of peers, by a summary, that so many others come before in an ordered
    group; behind the last row where there are not so many."""
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    sides = 2 * load(table, TAIL)
    root = 2 * load(group, TAIL) + 2
    steps = 0
    for i in range(rows):
        node = 0 if load(groups, i) == 0 else load32(load(groups, i), root)
        left = load(wanted, i)
        found = 0
        if left < 0:
            node = 0
        while node != 0:
            steps += 1
            address = load(table, ROWS) + (node - 1) * width
            lower = load32(address, sides)
            below = groups_below(table, lower, number)
            if left < below:
                node = lower
            else:
                left -= below
                found += copies_below(table, lower)
                own = begins_group(table, address, number)
                if left == 0 and own != 0:
                    break
                left -= own
                found += load(address, keys)
                node = load32(address, sides + 1)
        store(out, i, found)
    store(scratch, STEPS, load(scratch, STEPS) + steps + rows)


@kernel("int64(int64,int64,int64,int64,int64,int64,int64)")
def last_from(table, node, position, number, upwards, best, scratch):
    """The row that is last by a summary, of `best` and the rows of the tree at `node` with copies at a position or
    after it (with `upwards`), or before it."""
    order = summary_order(table, number)
    width = load(table, WIDTH) * 8
    rows = load(table, ROWS)
    sides = 2 * load(table, TAIL)
    keys = load(table, KEYS)
    steps = 0
    while node != 0:
        steps += 1
        address = rows + (node - 1) * width
        left = load32(address, sides)
        right = load32(address, sides + 1)
        before = copies_below(table, left)
        own = load(address, keys)
        if upwards != 0:
            inside = position < before + own
            whole = right
            follows = left if inside else right
        else:
            inside = position > before
            whole = left
            follows = right if inside else left
        if inside:
            best = address if compare_rows(order, address, best) > 0 else best
            other = extreme_below(table, rows + (whole - 1) * width, number) if whole != 0 else best
            best = other if compare_rows(order, other, best) > 0 else best
        if follows == right:
            position -= before + own
        node = follows
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return best


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def frame_extremes(table, group, groups, starts, ends, rows, number, scratch, out):
    """The address of the row that is last by a summary, of the rows with copies from a position of each ordered group
    to before another; 0 of none."""
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    sides = 2 * load(table, TAIL)
    root = 2 * load(group, TAIL) + 2
    steps = 0
    for i in range(rows):
        start = load(starts, i)
        end = load(ends, i)
        node = 0 if load(groups, i) == 0 or start >= end else load32(load(groups, i), root)
        best = 0
        while node != 0:
            # Down to the first row within the positions: on its left only the start counts, on its right the end.
            steps += 1
            address = load(table, ROWS) + (node - 1) * width
            left = load32(address, sides)
            before = copies_below(table, left)
            behind = before + load(address, keys)
            if end <= before:
                node = left
            elif start >= behind:
                start -= behind
                end -= behind
                node = load32(address, sides + 1)
            else:
                best = last_from(table, left, start, number, 1, address, scratch)
                best = last_from(table, load32(address, sides + 1), end - behind, number, 0, best, scratch)
                break
        store(out, i, best)
    store(scratch, STEPS, load(scratch, STEPS) + steps + rows)


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64)")
def frame_firsts(order, addresses, present, starts, ends, rows, queue, out):
    """Which of the rows at addresses[starts[i]] to addresses[ends[i] - 1] comes first by an order list, for each row i:
    its number, -1 where none is `present`.

    Neither bound ever goes back. The queue, with room for all addresses, holds those that may still come first, each
    after all that come before it (Lemire 2006): O(rows + addresses).
    """
    head = 0
    tail = 0
    last = 0
    for i in range(rows):
        while last < load(ends, i):
            if load(present, last) != 0:
                address = load(addresses, last)
                while tail > head and compare_rows(order, address, load(addresses, load(queue, tail - 1))) < 0:
                    tail -= 1
                store(queue, tail, last)
                tail += 1
            last += 1
        while head < tail and load(queue, head) < load(starts, i):
            head += 1
        found = -1
        if head < tail and load(queue, head) < load(ends, i):
            found = load(queue, head)
        store(out, i, found)

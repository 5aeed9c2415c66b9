"""Order statistics of ordered groups with subtree sums: who stands at a position, and what lies before a row.

A position counts copies: a row that is there three times stands at three positions. The sums of all rows before a row
are those of the left subtrees along its way up, and the row at a position is found along the subtrees' counts (Cormen
et al., *Introduction to Algorithms*, chapter on augmenting data structures): O(log group) expected for each.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, LINKS, ORDER, ORDER_INDEX, ROWS, STEPS, SUMS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.ordered_group import compare_rows
from sqlfront.storage.kernels.tables.subtree_sums import add_below, add_own


@kernel("int64(int64,int64)")
def copies_below(table, node):
    """The copies of all rows of the subtree at `node` (0: none)."""
    if node == 0:
        return 0
    return load(load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8, load(table, TAIL) + 1)


@kernel("void(int64,int64,int64,int64,int64)")
def sums_before(table, addresses, rows, scratch, out):
    """The sums of all rows that come before the row at each address in its group, SUMS values of a limb more each."""
    base = load(table, ROWS)
    width = load(table, WIDTH) * 8
    sides = 2 * load(table, TAIL)
    above = 2 * (load(table, LINKS) + 2 * load(load(table, ORDER), ORDER_INDEX)) + 3
    words = load(table, SUMS) * (load(table, LIMBS) + 1)
    steps = 0
    for i in range(rows):
        into = out + i * words * 8
        for j in range(words):
            store(into, j, 0)
        address = load(addresses, i)
        left = load32(address, sides)
        if left != 0:
            add_below(table, into, base + (left - 1) * width, 0)
        node = (address - base) // width + 1
        parent = load32(address, above)
        while parent != 0:
            steps += 1
            address = base + (parent - 1) * width
            if load32(address, sides) != node:
                add_own(table, into, address, 0)
                left = load32(address, sides)
                if left != 0:
                    add_below(table, into, base + (left - 1) * width, 0)
            node = parent
            parent = load32(address, above)
    store(scratch, STEPS, load(scratch, STEPS) + steps + rows)


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

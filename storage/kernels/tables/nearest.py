"""Neighbours in ordered groups, for reading: the first member that passes a test, the one before a row, a range.

The rows that ask lie one after the other, `width` words each. groups[i] is the address of the row of the group in which
row i looks, 0 without one. A test is that of range_scan: which outcomes pass, where in the row and in the member to
look, and an order list. Members that pass a test follow those that fail in the group's order, so the first is found
along the group's tree. O(log group) expected for each row, and the members that a range lists.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import LINKS, ORDER, ROWS, STEPS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.extreme_search import within
from sqlfront.storage.kernels.tables.range_scan import first_passing
from sqlfront.storage.kernels.tables.row_order import compare_rows


@kernel("int64(int64,int64)")
def root_of(group, address):
    """The root of the tree of the group whose row is at an address, 0 without a group."""
    return 0 if address == 0 else load32(address, 2 * load(group, TAIL) + 2)


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def first_members(table, group, groups, rows, count, width, test, scratch, out):
    """The address of the first member that passes a row's test, 0 if none does."""
    for i in range(count):
        root = root_of(group, load(groups, i))
        member = first_passing(table, scratch, root, test, rows + i * width * 8)
        store(out, i, 0 if member == 0 else load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8)
    store(scratch, STEPS, load(scratch, STEPS) + count)


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def neighbours(table, group, groups, rows, count, width, equal, scratch, out):
    """The address of the last member before a row in the group's order or, if `equal`, of a member at the row's place;
    0 if there is none. A row has the words that the order compares at the places of the table's rows."""
    order = load(table, ORDER)
    sides = 2 * load(table, TAIL)
    steps = count
    for i in range(count):
        row = rows + i * width * 8
        node = root_of(group, load(groups, i))
        found = 0
        while node != 0:
            address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
            outcome = compare_rows(order, address, row)
            if outcome < 0:
                found = found if equal != 0 else address
            elif outcome == 0 and equal != 0:
                found = address
            node = load32(address, sides + (1 if outcome < 0 else 0))
            steps += 1
        store(out, i, found)
    store(scratch, STEPS, load(scratch, STEPS) + steps)


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def ranges(table, index, group, groups, rows, count, width, test, ends, scratch, out):
    """The addresses of the members that pass a row's test and fail that of the row at ends[i] (0: all fail it).

    Returns how many there are; with `out` 0 they are only counted.
    """
    after = 2 * (load(table, LINKS) + 2 * index)
    made = 0
    for i in range(count):
        root = root_of(group, load(groups, i))
        member = first_passing(table, scratch, root, test, rows + i * width * 8)
        while member != 0:
            address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            if load(ends, i) != 0 and within(test, load(ends, i), address):
                break
            if out != 0:
                store(out, made, address)
            made += 1
            member = load32(address, after)
    store(scratch, STEPS, load(scratch, STEPS) + count + made)
    return made

"""Neighbours in ordered groups, for reading: the first members that pass a test, a member before a row, a range.

The rows that ask lie one after the other, `width` words each. groups[i] is the address of the row of the group in which
row i looks, 0 without one. A test is that of range_scan: which outcomes pass, where in the row and in the member to
look, and an order list. Members that pass a test follow those that fail in the group's order, so the first is found
along the group's tree. Word `copies` of a member says how often it is there. What is listed is only counted with `out`
0. O(log group) expected for each row, and the members that are passed or listed.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import LINKS, ORDER, ROWS, STEPS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.extreme_search import passing_from, within
from sqlfront.storage.kernels.tables.range_scan import first_passing
from sqlfront.storage.kernels.tables.row_order import compare_rows


@kernel("int64(int64,int64)")
def root_of(group, address):
    """The root of the tree of the group whose row is at an address, 0 without a group."""
    return 0 if address == 0 else load32(address, 2 * load(group, TAIL) + 2)


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def first_members(table, index, group, groups, rows, count, width, test, most, copies, sizes, scratch, out):
    """The first members that pass a row's test, as long as they are `most` copies: the address of each, and how many of
    its copies are within. sizes[i] says how many members row i has. Returns how many there are."""
    after = 2 * (load(table, LINKS) + 2 * index)
    made = 0
    for i in range(count):
        root = root_of(group, load(groups, i))
        member = first_passing(table, scratch, root, test, rows + i * width * 8)
        wanted = most
        before = made
        while member != 0 and wanted > 0:
            address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            taken = min(wanted, load(address, copies))
            if out != 0:
                store(out, 2 * made, address)
                store(out, 2 * made + 1, taken)
            wanted -= taken
            made += 1
            member = load32(address, after)
        store(sizes, i, made - before)
    store(scratch, STEPS, load(scratch, STEPS) + count + made)
    return made


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def members_before(table, index, group, groups, rows, count, width, most, copies, scratch, out):
    """The address of the last member before a row in the group's order that makes `most` copies with those between the
    two; 0 if there is none. A row has the words that the order compares at the places of the table's rows."""
    order = load(table, ORDER)
    sides = 2 * load(table, TAIL)
    former = 2 * (load(table, LINKS) + 2 * index) + 1
    steps = count
    for i in range(count):
        node = root_of(group, load(groups, i))
        found = 0
        while node != 0:
            address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
            is_before = compare_rows(order, address, rows + i * width * 8) < 0
            found = node if is_before else found
            node = load32(address, sides + (1 if is_before else 0))
            steps += 1
        passed = 0
        address = 0
        while found != 0:
            address = load(table, ROWS) + (found - 1) * load(table, WIDTH) * 8
            passed += load(address, copies)
            if passed >= most:
                break
            is_head = load32(load(groups, i), 2 * load(group, TAIL)) == found  # The head's link leads to the last.
            found = 0 if is_head else load32(address, former)
            steps += 1
        store(out, i, 0 if found == 0 else address)
    store(scratch, STEPS, load(scratch, STEPS) + steps)


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def members_at(table, index, group, groups, rows, count, width, scratch, out):
    """The addresses of the members at a row's place in the group's order. Returns how many there are. The row is laid
    out as for `members_before`."""
    order = load(table, ORDER)
    sides = 2 * load(table, TAIL)
    after = 2 * (load(table, LINKS) + 2 * index)
    made = 0
    steps = count
    for i in range(count):
        row = rows + i * width * 8
        node = root_of(group, load(groups, i))
        found = 0
        while node != 0:
            address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
            is_before = compare_rows(order, address, row) < 0
            found = found if is_before else node
            node = load32(address, sides + (1 if is_before else 0))
            steps += 1
        while found != 0:
            address = load(table, ROWS) + (found - 1) * load(table, WIDTH) * 8
            if compare_rows(order, address, row) != 0:
                break
            if out != 0:
                store(out, made, address)
            made += 1
            found = load32(address, after)
    store(scratch, STEPS, load(scratch, STEPS) + steps + made)
    return made


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def ranges(table, index, group, groups, rows, count, width, test, ends, beside, scratch, out):
    """The addresses of the members that pass a row's test and fail that of the row at ends[i] (0: all fail it). Members
    that fail the row's test `beside` (0: no test) are left out; it compares the column whose extremes subtrees know.
    Returns how many there are."""
    after = 2 * (load(table, LINKS) + 2 * index)
    made = 0
    for i in range(count):
        row = rows + i * width * 8
        member = first_passing(table, scratch, root_of(group, load(groups, i)), test, row)
        if beside != 0:
            member = passing_from(table, index, scratch, member, beside, row)
        while member != 0:
            address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            if load(ends, i) != 0 and within(test, load(ends, i), address):
                break
            if out != 0:
                store(out, made, address)
            made += 1
            member = load32(address, after)
            if beside != 0:
                member = passing_from(table, index, scratch, member, beside, row)
    store(scratch, STEPS, load(scratch, STEPS) + count + made)
    return made

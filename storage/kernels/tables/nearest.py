"""Neighbours in ordered groups, for reading: the first members that pass a test, a member before a row, a range.

`row` is the address of the row that asks, `group_row` that of the row of the group in which it looks, 0 without one. A
test is that of range_scan: which outcomes pass, where in the row and in the member to look, and an order list. Members
that pass a test follow those that fail in the group's order, so the first is found along the group's tree. The word
behind a member's key says how often the member is there. Found addresses are appended to a list, whose memory grows.
O(log group) expected for a row, and the members that are passed or listed.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    KEYS,
    LINKS,
    LIST_AT,
    LIST_ROOM,
    LIST_USED,
    ORDER,
    ROWS,
    STEPS,
    TAIL,
    WIDTH,
)
from sqlfront.storage.kernels.memory import load, load32, realloc, store
from sqlfront.storage.kernels.tables.extreme_search import passing_from, within
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_places
from sqlfront.storage.kernels.tables.range_scan import first_passing
from sqlfront.storage.kernels.tables.row_order import compare_rows

_LEAST_ROOM = 64


@kernel("int64(int64,int64)")
def take_words(words, count):
    """The address of `count` more words of a list."""
    used = load(words, LIST_USED)
    if used + count > load(words, LIST_ROOM):
        room = max(_LEAST_ROOM, 2 * (used + count))
        store(words, LIST_AT, realloc(load(words, LIST_AT), room * 8))
        store(words, LIST_ROOM, room)
    store(words, LIST_USED, used + count)
    return load(words, LIST_AT) + used * 8


@kernel("int64(int64,int64,int64,int64)")
def row_of(table, scratch, row, places):
    """The address of the table's row whose key is the words of a row at `places` (their number, and then they); 0
    without one."""
    count = load(places, 0)
    found = find(table, scratch, hash_places(row, places, 1, count), row, places, 1)
    return 0 if found < 0 else load(table, ROWS) + found * load(table, WIDTH) * 8


@kernel("int64(int64,int64)")
def root_of(group, group_row):
    """The root of the tree of a group, 0 without a group."""
    return 0 if group_row == 0 else load32(group_row, 2 * load(group, TAIL) + 2)


@kernel("int64(int64,int64,int64,int64,int64,int64,int64)")
def member_before(table, index, group, group_row, row, most, scratch):
    """The address of the last member before a row in the group's order that makes `most` copies with those between the
    two; 0 if there is none. The row has the words that the order compares at the places of the table's rows."""
    order = load(table, ORDER)
    sides = 2 * load(table, TAIL)
    former = 2 * (load(table, LINKS) + 2 * index) + 1
    node = root_of(group, group_row)
    found = 0
    steps = 1
    while node != 0:
        address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
        is_before = compare_rows(order, address, row) < 0
        found = node if is_before else found
        node = load32(address, sides + (1 if is_before else 0))
        steps += 1
    passed = 0
    address = 0
    while found != 0:
        address = load(table, ROWS) + (found - 1) * load(table, WIDTH) * 8
        passed += load(address, load(table, KEYS))
        if passed >= most:
            break
        is_head = load32(group_row, 2 * load(group, TAIL)) == found  # The head's link leads to the last.
        found = 0 if is_head else load32(address, former)
        steps += 1
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return 0 if found == 0 else address


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def list_at(table, index, group, group_row, row, scratch, found):
    """Append the addresses of the members at a row's place in the group's order to a list of pairs (address, 1). The
    row is laid out as for `member_before`."""
    order = load(table, ORDER)
    sides = 2 * load(table, TAIL)
    after = 2 * (load(table, LINKS) + 2 * index)
    steps = 1
    node = root_of(group, group_row)
    member = 0
    while node != 0:
        address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
        is_before = compare_rows(order, address, row) < 0
        member = member if is_before else node
        node = load32(address, sides + (1 if is_before else 0))
        steps += 1
    while member != 0:
        address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
        if compare_rows(order, address, row) != 0:
            break
        append_address(found, address)
        member = load32(address, after)
        steps += 1
    store(scratch, STEPS, load(scratch, STEPS) + steps)


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def list_range(table, index, group, group_row, row, test, end, beside, scratch, found):
    """Append the addresses of the members that pass a row's test and fail that of the row at `end` (0: all fail it) to
    a list of pairs (address, 1). Members that fail the row's test `beside` (0: no test) are left out; it compares the
    column whose extremes subtrees know."""
    after = 2 * (load(table, LINKS) + 2 * index)
    member = first_passing(table, scratch, root_of(group, group_row), test, row)
    steps = 1
    if beside != 0:
        member = passing_from(table, index, scratch, member, beside, row)
    while member != 0:
        address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
        if end != 0 and within(test, end, address):
            break
        append_address(found, address)
        steps += 1
        member = load32(address, after)
        if beside != 0:
            member = passing_from(table, index, scratch, member, beside, row)
    store(scratch, STEPS, load(scratch, STEPS) + steps)


@kernel("void(int64,int64)")
def append_address(found, address):
    """Append a pair (address, 1) to a list."""
    target = take_words(found, 2)
    store(target, 0, address)
    store(target, 1, 1)

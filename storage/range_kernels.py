"""RANGE: bind new variables of a delta by listing the members of an ordered group that lie between two bounds.

The lists of the index are sorted by what is compared, so those that pass are neighbours: the first is found along the
group's tree, and they are listed from there until one fails.
"""

from __future__ import annotations

from storage.delta_kernels import gather_keys, reserve_scratch
from storage.jit import kernel
from storage.layout import CHUNK, LINKS, MATCHES, ROWS, STEPS, TAIL, WIDTH
from storage.memory import load, load32, store
from storage.order_kernels import compare_rows
from storage.table_kernels import find, hash_words

# Where RANGE goes on when it is called again.
_POSITION, _MEMBER = 4, 5
_GROUP, _INDEX, _LOWER, _UPPER, _COUNT = 6, 7, 8, 9, 10


@kernel("boolean(int64,int64,int64)")
def within(test, row, member):
    """Whether a delta row and a member pass a test, which says where in each to look, and by what order."""
    outcome = compare_rows(test + 3 * 8, row + load(test, 1) * 8, member + load(test, 2) * 8)
    return (load(test, 0) >> (outcome + 1)) & 1 != 0


@kernel("int64(int64,int64,int64,int64)")
def first_member(at, scratch, row, h):
    """The first member for a delta row that passes the lower bound, 0 if none does; `h` is its key's hash."""
    group = load(at, _GROUP)
    group_row = find(group, scratch, h, row, at, _COUNT + 1)
    if group_row < 0:
        return 0
    tail = load(group, ROWS) + (group_row * load(group, WIDTH) + load(group, TAIL)) * 8
    if load(at, _LOWER) == 0:
        return load32(tail, 0)
    test = at + load(at, _LOWER) * 8
    table = load(at, 2)
    node = load32(tail, 2)
    first = 0
    steps = 0
    while node != 0:
        address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
        passing = within(test, row, address)
        if passing:
            first = node
        node = load32(address, 2 * load(table, TAIL) + (0 if passing else 1))
        steps += 1
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return first


@kernel("int64(int64,int64,int64,int64,int64)")
def step_range(at, scratch, delta, width, rows):
    """[RANGE, length, table, emit place, next delta row, next member, group, index, place of the lower bound's test,
    of the upper bound's (0: none), n, places of the key..., tests: passing outcomes, place in the delta, place in the
    table, an order list...].

    Match each delta row with the members of its group within the bounds, at most CHUNK a call; words 4 and 5 say where
    to go on (next delta row = -1: done). O(log group) expected and the members within, for each row.
    """
    table = load(at, 2)
    reserve_scratch(scratch, 0, CHUNK)
    matches = load(scratch, MATCHES)
    upper = at + load(at, _UPPER) * 8
    count = load(at, _COUNT)
    after = 2 * (load(table, LINKS) + 2 * load(at, _INDEX))
    position = load(at, _POSITION)
    member = load(at, _MEMBER)
    found = 0
    steps = 0
    while position < rows and found < CHUNK:
        row = delta + position * width * 8
        if member == 0:
            h = hash_words(gather_keys(at, _COUNT, row, scratch), count)
            member = first_member(at, scratch, row, h)
            steps += 1
        while member != 0 and found < CHUNK:
            address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            steps += 1
            if upper != at and not within(upper, row, address):
                member = 0
            else:
                store(matches, 2 * found, row)
                store(matches, 2 * found + 1, address)
                found += 1
                member = load32(address, after)
        if member == 0:
            position += 1
    store(at, _POSITION, -1 if position >= rows else position)
    store(at, _MEMBER, member)
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return found

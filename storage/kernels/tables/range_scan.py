"""RANGE and RANGE_SUM: what lies between two bounds in an ordered group, listed to bind new variables, or its sum.

The lists of the index are sorted by what is compared, so those that pass are neighbours: the first is found along the
group's tree, and they are listed from there until one fails. Their sum is that of the subtree of the topmost of them
without what fails on either side, of which each level has one subtree at most (Idris et al. 2020 sum up what they sort
anew; the tree keeps it for the next change).
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import CHUNK, LIMBS, LINKS, MATCHES, ROWS, STEPS, SUMS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.delta import buffer, gather_keys, reserve_scratch
from sqlfront.storage.kernels.tables.extreme_search import passing_from, within
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_words
from sqlfront.storage.kernels.tables.subtree_sums import add_below

# Where RANGE goes on when it is called again; the buffer in which RANGE_SUM makes its sums.
_POSITION, _MEMBER = 4, 5
_SUMS = 4
_TESTED = 16
"""Members that are tested one by one before the last one within the bound is looked up."""
_GROUP, _INDEX, _LOWER, _UPPER, _BESIDE, _COUNT = 6, 7, 8, 9, 10, 11


@kernel("int64(int64,int64,int64,int64,int64)")
def first_passing(table, scratch, node, test, row):
    """The first member of the tree at `node` that passes a lower bound, 0 if none does. O(log group) expected."""
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
def last_passing(table, scratch, node, test, row):
    """The last member of the tree at `node` that passes an upper bound, 0 if none does. O(log group) expected."""
    last = 0
    steps = 0
    while node != 0:
        address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
        passing = within(test, row, address)
        if passing:
            last = node
        node = load32(address, 2 * load(table, TAIL) + (1 if passing else 0))
        steps += 1
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return last


@kernel("int64(int64,int64,int64,int64)")
def last_member(at, scratch, row, h):
    """The last member for a delta row that passes the upper bound; there is one. `h` is its key's hash."""
    group = load(at, _GROUP)
    tail = (
        load(group, ROWS) + (find(group, scratch, h, row, at, _COUNT + 1) * load(group, WIDTH) + load(group, TAIL)) * 8
    )
    return last_passing(load(at, 2), scratch, load32(tail, 2), at + load(at, _UPPER) * 8, row)


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
    return first_passing(load(at, 2), scratch, load32(tail, 2), at + load(at, _LOWER) * 8, row)


@kernel("int64(int64,int64,int64,int64,int64)")
def step_range(at, scratch, delta, width, rows):
    """[RANGE, length, table, emit place, next delta row, next member, group, index, place of the lower bound's test,
    of the upper bound's, of that beside them (0: none), n, places of the key..., tests: passing outcomes, place in the
    delta, place in the table, an order list...].

    Match each delta row with the members of its group within the bounds, at most CHUNK a call; words 4 and 5 say where
    to go on (next delta row = -1: done). O(log group) expected and the members within, for each row. The test beside
    is one of the table's second order: then each member that passes it takes O(log group), and no others are met.
    """
    table = load(at, 2)
    reserve_scratch(scratch, 0, CHUNK)
    matches = load(scratch, MATCHES)
    upper = at + load(at, _UPPER) * 8
    beside = at + load(at, _BESIDE) * 8
    after = 2 * (load(table, LINKS) + 2 * load(at, _INDEX))
    position = load(at, _POSITION)
    member = load(at, _MEMBER)
    found = 0
    steps = 0
    while position < rows and found < CHUNK:
        row = delta + position * width * 8
        h = hash_words(gather_keys(at, _COUNT, row, scratch), load(at, _COUNT))
        if member == 0:
            member = first_member(at, scratch, row, h)
            if beside != at:
                member = passing_from(table, load(at, _INDEX), scratch, member, beside, row)
            steps += 1
        tests = CHUNK
        if beside == at:
            tests = _TESTED if upper != at else 0
        while member != 0 and found < CHUNK and tests > 0:
            address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            steps += 1
            tests -= 1
            if upper != at and not within(upper, row, address):  # All later members are beyond it, too.
                member = 0
            else:
                store(matches, 2 * found, row)
                store(matches, 2 * found + 1, address)
                found += 1
                member = load32(address, after)
                if beside != at:
                    member = passing_from(table, load(at, _INDEX), scratch, member, beside, row)
        # The rest of a long list is not tested: its last member is looked up.
        last = 0
        if member != 0 and found < CHUNK and upper != at:
            steps += 1
            if within(upper, row, load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8):
                last = last_member(at, scratch, row, h)
            else:
                member = 0
        while member != 0 and found < CHUNK:
            address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            steps += 1
            store(matches, 2 * found, row)
            store(matches, 2 * found + 1, address)
            found += 1
            member = 0 if member == last else load32(address, after)
        if member == 0:
            position += 1
    store(at, _POSITION, -1 if position >= rows else position)
    store(at, _MEMBER, member)
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return found


@kernel("void(int64,int64,int64,int64,int64)")
def keep_within(test, row, addresses, rows, keep):
    """Clear the word keep[i] of each row that fails a test."""
    for i in range(rows):
        if not within(test, row, load(addresses, i)):
            store(keep, i, 0)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def take_failing(table, test, row, node, side, sums):
    """Take from `sums` the members of the subtree at `node` that fail a bound; these lie on its `side` (0: left).

    Returns the steps: O(log group) expected.
    """
    sides = 2 * load(table, TAIL)
    steps = 0
    while node != 0:
        address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
        passing = within(test, row, address)
        node = load32(address, sides + (side if passing else 1 - side))
        if not passing:
            add_below(table, sums, address, 1)
            if node != 0:
                add_below(table, sums, load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8, 0)
        steps += 1
    return steps


@kernel("int64(int64,int64,int64,int64,int64)")
def sum_within(at, scratch, row, root, sums):
    """Add to `sums` the members of the tree at `root` that a delta row's bounds let pass; 1 if there is any."""
    table = load(at, 2)
    sides = 2 * load(table, TAIL)
    lower = load(at, _LOWER) * 8
    upper = load(at, _UPPER) * 8
    node = root
    steps = 0
    found = 0
    while node != 0 and found == 0:
        address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
        steps += 1
        if lower != 0 and not within(at + lower, row, address):
            node = load32(address, sides + 1)
        elif upper != 0 and not within(at + upper, row, address):
            node = load32(address, sides)
        else:
            found = 1
            add_below(table, sums, address, 0)
            if lower != 0:
                steps += take_failing(table, at + lower, row, load32(address, sides), 0, sums)
            if upper != 0:
                steps += take_failing(table, at + upper, row, load32(address, sides + 1), 1, sums)
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return found


@kernel("int64(int64,int64,int64,int64,int64)")
def step_range_sum(at, scratch, delta, width, rows):
    """[RANGE_SUM, length, table, emit place, sums' buffer, 0, and then as RANGE].

    Match each delta row with the sum of the members of its group within the bounds, if there are any: values without a
    key, of one limb more than the table's. O(log group) expected for each row.
    """
    table = load(at, 2)
    group = load(at, _GROUP)
    reserve_scratch(scratch, 0, rows)
    matches = load(scratch, MATCHES)
    words = load(table, SUMS) * (load(table, LIMBS) + 1)
    sums = buffer(scratch, load(at, _SUMS), words * rows)
    found = 0
    for i in range(rows):
        row = delta + i * width * 8
        h = hash_words(gather_keys(at, _COUNT, row, scratch), load(at, _COUNT))
        group_row = find(group, scratch, h, row, at, _COUNT + 1)
        if group_row < 0:
            continue
        tail = load(group, ROWS) + (group_row * load(group, WIDTH) + load(group, TAIL)) * 8
        out = sums + found * words * 8
        for j in range(words):
            store(out, j, 0)
        if sum_within(at, scratch, row, load32(tail, 2), out) == 1:
            store(matches, 2 * found, row)
            store(matches, 2 * found + 1, out)
            found += 1
    store(scratch, STEPS, load(scratch, STEPS) + rows)
    return found

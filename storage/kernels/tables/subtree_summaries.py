"""Subtree summaries: what each row of an ordered group knows, besides sums, of the rows below it in the group's tree.

A row has one word for each summary of its table (SUMMARIES, kernels/layout.py), before TAIL:

EXTREME  which row, of those below and the row itself, is last in a second order. A subtree none of whose rows passes a
         bound in that order is left out of a search (a priority search tree, McCreight 1985, as an augmented search
         tree); and the last row of any range of the list is one of O(log group) extremes.
PEERS    how many groups of peers begin among the rows below and the row itself. Peers tie in the first items of the
         list's order; a row begins a group if the row before it in the list is none of its peers. So ranks without gaps
         are counted as positions are.

A rotation changes the summaries of two rows, a new or a removed row those of the rows above it, and a group whose first
row changes those above its new first row: O(log group).
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    ROWS,
    SUMMARIES,
    SUMMARY_ENTRY,
    SUMMARY_EXTREME,
    SUMMARY_PEERS,
    TAIL,
    WIDTH,
)
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.row_order import compare_rows


@kernel("int64(int64)")
def summaries(table):
    """How many summaries the rows of a table have."""
    known = load(table, SUMMARIES)
    return 0 if known == 0 else load(known, 0)


@kernel("int64(int64,int64)")
def summary_kind(table, number):
    """What a summary tells."""
    return load(load(table, SUMMARIES), SUMMARY_ENTRY + 2 * number)


@kernel("int64(int64,int64)")
def summary_order(table, number):
    """The order list by which a summary compares rows."""
    return load(load(table, SUMMARIES), SUMMARY_ENTRY + 2 * number + 1)


@kernel("int64(int64,int64,int64)")
def extreme_below(table, address, number):
    """The address of the row that is last, by a summary's order, of those at and below the row at an address."""
    row = load(address, load(table, TAIL) - 1 - number) - 1
    return load(table, ROWS) + row * load(table, WIDTH) * 8


@kernel("int64(int64,int64,int64)")
def groups_below(table, node, number):
    """How many groups of peers begin at and below `node` (0: none)."""
    if node == 0:
        return 0
    address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
    return load(address, load(table, TAIL) - 1 - number)


@kernel("int64(int64,int64,int64)")
def begins_group(table, address, number):
    """1 if the row at an address begins a group of peers, else 0."""
    tail = load(table, TAIL)
    below = groups_below(table, load32(address, 2 * tail), number)
    return load(address, tail - 1 - number) - below - groups_below(table, load32(address, 2 * tail + 1), number)


@kernel("void(int64,int64)")
def find_extremes(table, address):
    """Compute the extremes of a row's subtree from its children's extremes."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    tail = load(table, TAIL)
    for number in range(summaries(table)):
        if summary_kind(table, number) == SUMMARY_EXTREME:
            last = address
            for side in range(2):
                child = load32(address, 2 * tail + side)
                if child != 0:
                    other = extreme_below(table, rows + (child - 1) * width, number)
                    last = other if compare_rows(summary_order(table, number), other, last) > 0 else last
            store(address, tail - 1 - number, (last - rows) // width + 1)


@kernel("int64(int64,int64,int64)")
def find_extremes_above(table, node, above):
    """Find the subtree extremes of a row, by its number plus one, and of all rows above it anew. Returns the steps."""
    steps = 0
    while node != 0:
        address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
        find_extremes(table, address)
        node = load32(address, above)
        steps += 1
    return steps


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def add_groups(table, node, until, above, number, change):
    """Add a number of groups of peers to the summary of a row, by its number plus one, and of the rows above it, up to
    but without `until` (0: all). Returns the steps."""
    place = load(table, TAIL) - 1 - number
    steps = 0
    while node != until and node != 0:
        address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
        store(address, place, load(address, place) + change)
        node = load32(address, above)
        steps += 1
    return steps


@kernel("void(int64,int64,int64)")
def begin_summaries(table, address, before):
    """What a row tells by itself: whether it begins groups of peers after the row `before` (0: none)."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    for number in range(summaries(table)):
        own = (address - rows) // width + 1
        if summary_kind(table, number) == SUMMARY_PEERS:
            former = rows + (before - 1) * width
            own = 1 if before == 0 or compare_rows(summary_order(table, number), former, address) != 0 else 0
        store(address, load(table, TAIL) - 1 - number, own)


@kernel("void(int64,int64)")
def combine_summaries(table, address):
    """Add to a row's own summaries those of its children."""
    find_extremes(table, address)
    tail = load(table, TAIL)
    for number in range(summaries(table)):
        if summary_kind(table, number) == SUMMARY_PEERS:
            below = groups_below(table, load32(address, 2 * tail), number)
            below += groups_below(table, load32(address, 2 * tail + 1), number)
            store(address, tail - 1 - number, load(address, tail - 1 - number) + below)


@kernel("int64(int64,int64,int64,int64,int64)")
def enter_summaries(table, row, before, after, above):
    """Tell the rows above a new leaf of it, which stands between two rows of its list (0: none). Returns the steps."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    address = rows + row * width
    begin_summaries(table, address, before)
    steps = 0
    for number in range(summaries(table)):
        order = summary_order(table, number)
        place = load(table, TAIL) - 1 - number
        node = load32(address, above)
        if summary_kind(table, number) == SUMMARY_PEERS:
            # Where the row begins the group of the row after it, that row no longer does. It is one of those above.
            followed = after != 0 and compare_rows(order, address, rows + (after - 1) * width) == 0
            if load(address, place) != 0:
                steps += add_groups(table, node, after if followed else 0, above, number, 1)
        else:
            while node != 0:
                upper = rows + (node - 1) * width
                if compare_rows(order, address, extreme_below(table, upper, number)) <= 0:
                    break
                store(upper, place, row + 1)
                node = load32(upper, above)
                steps += 1
    return steps


@kernel("int64(int64,int64,int64,int64)")
def leave_groups(table, row, after, above):
    """Take a row, which the row `after` (0: none) follows in its list, out of the groups of peers. It compares no
    values. Returns the steps."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    steps = 0
    for number in range(summaries(table)):
        if summary_kind(table, number) == SUMMARY_PEERS and begins_group(table, rows + row * width, number) != 0:
            follows = after != 0 and begins_group(table, rows + (after - 1) * width, number) == 0
            steps += add_groups(table, row + 1, 0, above, number, -1)
            if follows:
                steps += add_groups(table, after, 0, above, number, 1)
    return steps


@kernel("void(int64,int64,int64,int64)")
def rotate_groups(table, upper, lifted, inner):
    """After the row at address `lifted` has become the parent of its parent, whose child `inner` (0: none) now is."""
    for number in range(summaries(table)):
        if summary_kind(table, number) == SUMMARY_PEERS:
            place = load(table, TAIL) - 1 - number
            whole = load(upper, place)
            store(upper, place, whole - load(lifted, place) + groups_below(table, inner, number))
            store(lifted, place, whole)


@kernel("void(int64,int64,int64)")
def renumber_summaries(table, address, renumbered):
    """After rows have moved from old to new numbers."""
    for number in range(summaries(table)):
        if summary_kind(table, number) == SUMMARY_EXTREME:
            place = load(table, TAIL) - 1 - number
            store(address, place, load32(renumbered, load(address, place) - 1) + 1)

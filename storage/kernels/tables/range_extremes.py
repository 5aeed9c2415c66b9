"""The extreme of the members of an ordered group within a range, along subtree extremes: the first summary of rows.

A range has one bound or two, as tests of range_scan. The members within it are the topmost of them, and subtrees to its
left and right, of which each level has one at most. So O(log group) extremes are compared for each row that asks.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import ROWS, STEPS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.extreme_search import within
from sqlfront.storage.kernels.tables.row_order import compare_rows
from sqlfront.storage.kernels.tables.subtree_summaries import extreme_below, summary_order


@kernel("int64(int64,int64,int64)")
def last_of(table, one, other):
    """Of two rows, by their addresses, the one that is last in the second order; 0 is no row."""
    if one == 0 or other == 0:
        return one + other
    return one if compare_rows(summary_order(table, 0), one, other) >= 0 else other


@kernel("int64(int64,int64)")
def last_below(table, node):
    """The row that is last in the second order of those at and below a node (0: none)."""
    return 0 if node == 0 else extreme_below(table, load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8, 0)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def last_passing(table, scratch, node, test, row, side):
    """The row that is last in the second order of those at and below a node that pass a bound. Rows that fail it lie at
    the `side` (0: left) of those that pass."""
    sides = 2 * load(table, TAIL)
    found = 0
    steps = 0
    while node != 0:
        address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
        passing = within(test, row, address)
        if passing:
            found = last_of(table, last_of(table, found, address), last_below(table, load32(address, sides + 1 - side)))
        node = load32(address, sides + (side if passing else 1 - side))
        steps += 1
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return found


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def last_within(table, scratch, node, lower, upper, row):
    """The row that is last in the second order of those at and below a node that pass both bounds of a row (0: no
    bound), by its address; 0 if none does."""
    sides = 2 * load(table, TAIL)
    while node != 0:
        address = load(table, ROWS) + (node - 1) * load(table, WIDTH) * 8
        store(scratch, STEPS, load(scratch, STEPS) + 1)
        left = load32(address, sides)
        right = load32(address, sides + 1)
        if lower != 0 and not within(lower, row, address):
            node = right
        elif upper != 0 and not within(upper, row, address):
            node = left
        else:
            one = last_below(table, left) if lower == 0 else last_passing(table, scratch, left, lower, row, 0)
            other = last_below(table, right) if upper == 0 else last_passing(table, scratch, right, upper, row, 1)
            return last_of(table, last_of(table, one, address), other)
    return 0

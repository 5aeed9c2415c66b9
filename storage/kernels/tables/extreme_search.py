"""Searching an ordered group by a second order, too: subtrees whose extreme fails a bound are left out.

The members that pass the bound are found one after another, in the order of the list, each in O(log group) steps. So
the rows between two bounds of one variable that pass a bound of another one, as intervals that overlap do, are listed
in O((1 + rows) log group). The second order is that of the table's first subtree summary.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import LINKS, ORDER_ENTRY, ROWS, STEPS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.row_order import are_plain, compare_plain, compare_rows
from sqlfront.storage.kernels.tables.subtree_summaries import extreme_below


@kernel("boolean(int64,int64,int64)")
def within(test, row, member):
    """Whether a delta row and a member pass a test, which says where in each to look, and by what order."""
    order = test + 3 * 8
    entry = order + ORDER_ENTRY * 8
    x = load(row, load(test, 1) + load(entry, 0))
    y = load(member, load(test, 2) + load(entry, 0))
    if x != y and are_plain(entry, x, y):  # Most words are; `compare_rows` is too large to be inlined.
        outcome = compare_plain(entry, x, y)
    else:
        outcome = compare_rows(order, row + load(test, 1) * 8, member + load(test, 2) * 8)
    return (load(test, 0) >> (outcome + 1)) & 1 != 0


@kernel("int64(int64,int64,int64,int64)")
def first_below(table, node, test, row):
    """The first member at or below `node` that passes a test; there is one, as the subtree's extreme passes."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    sides = 2 * load(table, TAIL)
    while True:
        address = rows + (node - 1) * width
        left = load32(address, sides)
        if left != 0 and within(test, row, extreme_below(table, rows + (left - 1) * width, 0)):
            node = left
        elif within(test, row, address):
            return node
        else:
            node = load32(address, sides + 1)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def passing_from(table, index, scratch, node, test, row):
    """`node`, a member of a group of an ordered index, or the first one after it that passes a test; 0: none does."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    sides = 2 * load(table, TAIL)
    above = 2 * (load(table, LINKS) + 2 * index) + 3
    steps = 0
    found = 0
    while node != 0 and found == 0:
        address = rows + (node - 1) * width
        steps += 1
        if within(test, row, address):
            found = node
            break
        right = load32(address, sides + 1)
        if right != 0 and within(test, row, extreme_below(table, rows + (right - 1) * width, 0)):
            found = first_below(table, right, test, row)
            break
        # On to the nearest row above whose left subtree has been searched.
        former = node
        node = load32(address, above)
        while node != 0 and load32(rows + (node - 1) * width, sides) != former:
            former = node
            node = load32(rows + (node - 1) * width, above)
            steps += 1
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return found

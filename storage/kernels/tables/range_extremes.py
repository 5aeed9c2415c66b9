"""The extreme of the members of an ordered group within bounds of one column or of two, along subtree summaries.

The first summary of rows is the extreme row of a subtree, the second one the extreme of the second column. A search
goes to the subtree with the better extreme first. It leaves out subtrees whose extreme is no better than the row found,
and those without a row within the bound of the second column (a priority search tree, McCreight 1985, by two orders).

O(log group) expected within bounds of one column, and where the list is in the order of the first summary. Otherwise
each subtree that is searched has a row within all bounds: O((rows within the bounds + 1) log group) at worst.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import LIST_AT, LIST_USED, ROWS, STEPS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.extreme_search import within
from sqlfront.storage.kernels.tables.nearest import take_words
from sqlfront.storage.kernels.tables.row_order import compare_rows
from sqlfront.storage.kernels.tables.subtree_summaries import extreme_below, summary_order


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def last_within(table, scratch, stack, node, lower, upper, beside, row):
    """The row that is last in the order of the first summary of those at and below a node that pass all bounds of a row
    (0: no bound), by its address; 0 if none does. `beside` bounds the column of the second summary. `stack` is a list
    of words for the search."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    sides = 2 * load(table, TAIL)
    found = 0
    steps = 0
    store(stack, LIST_USED, 0)
    while node != 0:
        address = rows + (node - 1) * width
        last = extreme_below(table, address, 0)
        steps += 1
        below = 0
        if is_better(table, last, found) and (beside == 0 or within(beside, row, extreme_below(table, address, 1))):
            if is_within(lower, row, last) and is_within(upper, row, last) and is_within(beside, row, last):
                found = last
            elif not is_within(lower, row, address):
                below = load32(address, sides + 1)
            elif not is_within(upper, row, address):
                below = load32(address, sides)
            else:
                if is_within(beside, row, address) and is_better(table, address, found):
                    found = address
                left = load32(address, sides)
                below = load32(address, sides + 1)
                if left != 0 and below != 0:
                    last_left = extreme_below(table, rows + (left - 1) * width, 0)
                    is_left_first = is_better(table, last_left, extreme_below(table, rows + (below - 1) * width, 0))
                    store(take_words(stack, 1), 0, below if is_left_first else left)
                    below = left if is_left_first else below
                else:
                    below += left
        node = below
        if node == 0 and load(stack, LIST_USED) > 0:
            store(stack, LIST_USED, load(stack, LIST_USED) - 1)
            node = load(load(stack, LIST_AT), load(stack, LIST_USED))
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return found


@kernel("boolean(int64,int64,int64)")
def is_better(table, one, other):
    """Whether a row comes after another one (0: none) in the order of the first summary."""
    return other == 0 or compare_rows(summary_order(table, 0), one, other) > 0


@kernel("boolean(int64,int64,int64)")
def is_within(test, row, member):
    """Whether a member passes a test, if there is one."""
    return test == 0 or within(test, row, member)

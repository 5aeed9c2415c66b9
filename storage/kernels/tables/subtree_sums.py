"""Subtree sums: each row of an ordered group knows the sums of all values below it in the group's tree, its own too.

They have one limb more than the rows' values, so sums of as many rows as there can be never overflow; and they are
what the values of the rows add up to at any moment, so an epoch that is undone leaves them as they were, even where a
value had overflowed. A rotation needs the sums of three rows, a changed value those of its ancestors (Cormen et al.,
*Introduction to Algorithms*, chapter on augmenting data structures).
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, LINKS, ORDER, ORDER_INDEX, ROWS, STEPS, SUMS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.numbers.limbs import add_wide


@kernel("void(int64,int64,int64,int64)")
def add_own(table, into, row, negative):
    """Add (or with `negative` take) the values of the row at address `row` to the sums at address `into`."""
    limbs = load(table, LIMBS)
    keys = load(table, KEYS)
    for v in range(load(table, SUMS)):
        add_wide(into, v * (limbs + 1), limbs + 1, row, keys + v * limbs, limbs, negative)


@kernel("void(int64,int64,int64,int64)")
def add_below(table, into, row, negative):
    """Add (or with `negative` take) the subtree sums of the row at address `row` to the sums at address `into`."""
    limbs = load(table, LIMBS) + 1
    tail = load(table, TAIL) + 1
    for v in range(load(table, SUMS)):
        add_wide(into, v * limbs, limbs, row, tail + v * limbs, limbs, negative)


@kernel("void(int64,int64,int64,int64)")
def rotate_sums(table, upper, lifted, inner):
    """After the row at address `lifted` has become the parent of its parent, whose child `inner` (0: none) now is."""
    place = (load(table, TAIL) + 1) * 8
    add_below(table, upper + place, lifted, 1)
    add_below(table, lifted + place, upper, 0)
    if inner != 0:
        add_below(table, upper + place, inner, 0)


@kernel("int64(int64,int64,int64)")
def add_to_ancestors(table, row, negative):
    """Add (or with `negative` take) a row's values to the sums of the row and of all above it. Returns the steps."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    above = 2 * (load(table, LINKS) + 2 * load(load(table, ORDER), ORDER_INDEX)) + 3
    place = (load(table, TAIL) + 1) * 8
    node = row + 1
    steps = 0
    while node != 0:
        address = rows + (node - 1) * width
        add_own(table, address + place, rows + row * width, negative)
        node = load32(address, above)
        steps += 1
    return steps


@kernel("void(int64,int64,int64,int64)")
def change_sums(table, scratch, row, negative):
    """`add_to_ancestors` of a table with subtree sums; nothing for any other, nor while it is unsorted."""
    if load(table, SUMS) > 0 and load(load(table, ORDER), ORDER_INDEX) >= 0:
        steps = add_to_ancestors(table, row, negative)
        store(scratch, STEPS, load(scratch, STEPS) + steps)

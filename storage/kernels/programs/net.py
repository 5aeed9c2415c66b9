"""Netting an epoch's rows before they are applied: where a change meets many rows, what cancels should meet none."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.memory import load, store
from sqlfront.storage.kernels.tables.hashing import hash_words

_LARGE = 1 << 32  # Sums of so many weights could leave 64 bits.


@kernel("boolean(int64,int64,int64,boolean)")
def can_net(data, rows, width, always):
    """Whether it is `always`; or some of the rows' weights, their last words, are negative, some are not, and none is
    large."""
    if always:
        return True
    negative = False
    positive = False
    for i in range(rows):
        weight = load(data, i * width + width - 1)
        if weight > _LARGE or weight < -_LARGE:
            return False
        negative = negative or weight < 0
        positive = positive or weight > 0
    return negative and positive


@kernel("int64(int64,int64,int64,int64,int64,boolean)")
def net_rows(data, rows, width, slots, mask, always):
    """Add up the weights of equal rows in place; those of 0 go. Rows whose signs do not differ at all are left alone
    unless it is `always`. Returns how many rows are left, in the order in which they came first. `slots` are `mask` + 1
    words, more than there are rows."""
    if not can_net(data, rows, width, always):
        return rows
    for i in range(mask + 1):
        store(slots, i, 0)
    kinds = 0
    for i in range(rows):
        row = data + i * width * 8
        h = hash_words(row, width - 1)
        at = h & mask
        while True:
            slot = load(slots, at)
            if slot == 0:
                for j in range(width):
                    store(data, kinds * width + j, load(row, j))
                kinds += 1
                store(slots, at, (h << 32) | kinds)
                break
            if slot >> 32 == h:
                other = data + ((slot & 0xFFFFFFFF) - 1) * width * 8
                same = True
                for j in range(width - 1):
                    same = same and load(other, j) == load(row, j)
                if same:
                    store(other, width - 1, load(other, width - 1) + load(row, width - 1))
                    break
            at = (at + 1) & mask
    kept = 0
    for i in range(kinds):
        if load(data, i * width + width - 1) != 0:
            for j in range(width):
                store(data, kept * width + j, load(data, i * width + j))
            kept += 1
    return kept

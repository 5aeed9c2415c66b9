"""The order of two rows by some of their words, as an order list says (kernels/layout.py)."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    NULL_CODE,
    ORDER_BYTES,
    ORDER_COUNT,
    ORDER_DESCENDING,
    ORDER_ENTRY,
    ORDER_GREATEST,
    ORDER_HIGH,
    ORDER_KIND,
    ORDER_LOW_WORD,
    ORDER_NULLS_LAST,
    ORDER_WORD,
)
from sqlfront.storage.kernels.memory import less_unsigned, load
from sqlfront.storage.kernels.tables.byte_strings import compare_ids
from sqlfront.storage.kernels.tables.composed_terms import compare_composed


@kernel("int64(int64,int64,int64)")
def compare_rows(order, a, b):
    """-1, 0 or 1: the order of the words at two addresses by an order list. NULL comes first unless a flag says no."""
    for i in range(load(order, ORDER_COUNT)):
        entry = order + (ORDER_ENTRY + 3 * i) * 8
        place = load(entry, 0)
        x = load(a, place)
        y = load(b, place)
        if x != y:
            found = compare_plain(entry, x, y) if are_plain(entry, x, y) else compare_words(entry, a, b, x, y)
            if found != 0:
                return found
    return 0


@kernel("boolean(int64,int64,int64)")
def are_plain(entry, x, y):
    """Whether two words of an order list's entry compare as they are: no NULL, nor what stands for another value."""
    operand = load(entry, 2)
    return (
        load(entry, 1) & ORDER_KIND == ORDER_WORD
        and x != NULL_CODE
        and y != NULL_CODE
        and x != operand
        and y != operand
    )


@kernel("int64(int64,int64,int64)")
def compare_plain(entry, x, y):
    """-1 or 1: the order of two plain words that differ."""
    return 1 if (x > y) != (load(entry, 1) & ORDER_DESCENDING != 0) else -1


@kernel("int64(int64,int64,int64,int64,int64)")
def compare_words(entry, a, b, x, y):
    """-1, 0 or 1: the order of two words that differ, of two rows; 0 if it is to be seen from the words with them."""
    flags = load(entry, 1)
    kind = flags & ORDER_KIND
    operand = load(entry, 2)
    later = -1 if flags & ORDER_DESCENDING else 1
    if kind >= ORDER_GREATEST:
        return later * compare_composed(entry, a, b)
    if kind == ORDER_BYTES and x >= 0 and y >= 0:
        return later * compare_ids(operand, x, y)
    if kind == ORDER_LOW_WORD:
        return later * (1 - 2 * less_unsigned(x, y))
    if x == NULL_CODE or y == NULL_CODE:
        null_first = -1 if x == NULL_CODE else 1
        return -null_first if flags & ORDER_NULLS_LAST else null_first
    if operand != 0:
        # The word that stands for the value whose own would be NULL_CODE: its least, or (shifted) its greatest.
        x = NULL_CODE if x == operand else x
        y = NULL_CODE if y == operand else y
        if kind == ORDER_HIGH:
            x -= 1
            y -= 1
    return -later if x < y else later

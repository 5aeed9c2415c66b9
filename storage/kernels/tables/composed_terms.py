"""Order terms that several words make together: the greatest or the least of values, and products of two.

Each word has one owner among the nodes of a ranked tree. Where a part of a row does not own it, it is 0 in all keys
that are compared, and so tells nothing apart. Such a term must be *strictly* monotone, else two parts of rows could tie
with one partner and not with another, and would have no order of their own. So the values are compared as a multiset,
from the greatest down (leximax; from the least up, leximin), and of products that are 0 the one with fewer factors 0 is
greater, then that with the greater other factor. What only this tells apart, ORDER BY leaves open.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    GROUP_PLACE,
    GROUP_WORDS,
    NULL_CODE,
    ORDER_GREATEST,
    ORDER_KIND,
    ORDER_PRODUCT,
)
from sqlfront.storage.kernels.memory import high_product, less_unsigned, load


@kernel("int64(int64,int64,int64)")
def compare_composed(entry, a, b):
    """-1, 0 or 1: the order of two rows by the term that has the word of an order list's entry."""
    kind = load(entry, 1) & ORDER_KIND
    if kind == ORDER_PRODUCT:
        return compare_products(entry, a, b)
    return compare_extremes(entry, a, b)


@kernel("boolean(int64,int64,int64,boolean)")
def is_beyond(x, y, operand, upwards):
    """Whether a value comes before another one from the greatest down, or from the least up. NULL comes last."""
    if x == NULL_CODE or y == NULL_CODE:
        return y == NULL_CODE and x != NULL_CODE
    if operand != 0:
        x = NULL_CODE if x == operand else x
        y = NULL_CODE if y == operand else y
    if upwards:
        return x > y
    return x < y


@kernel("int64(int64,int64,int64)")
def compare_extremes(entry, a, b):
    """Multisets of words: who has more copies of the first value, in that order, of which they have not as many."""
    flags = load(entry, 1)
    count = (flags // GROUP_WORDS) & 255
    start = load(entry, 0) - flags // GROUP_PLACE
    upwards = flags & ORDER_KIND == ORDER_GREATEST
    first = 0
    surplus = 0
    for i in range(2 * count):
        x = load(a, start + i) if i < count else load(b, start + i - count)
        # Only a value that comes before the first one known to differ can decide.
        if surplus != 0 and not is_beyond(x, first, load(entry, 2), upwards):
            continue
        more = 0
        for j in range(count):
            if load(a, start + j) == x:
                more += 1
            if load(b, start + j) == x:
                more -= 1
        if more != 0:
            first = x
            surplus = more
    if surplus == 0:
        return 0
    return 1 if (surplus > 0) == upwards else -1


@kernel("int64(int64)")
def factor_of(word):
    """What a word, a number of 0 or more plus 1, gives to the product of those that are not 0; no word is 0."""
    return 1 if word == 0 or word == 1 else word - 1


@kernel("int64(int64,int64,int64)")
def compare_products(entry, a, b):
    """Products of two factors, 128 bits."""
    start = load(entry, 0) - load(entry, 1) // GROUP_PLACE
    zeros = 0
    for j in range(start, start + 2):
        if load(a, j) == 1:
            zeros += 1
        if load(b, j) == 1:
            zeros -= 1
    if zeros != 0:
        return -1 if zeros > 0 else 1
    p, q = factor_of(load(a, start)), factor_of(load(a, start + 1))
    r, s = factor_of(load(b, start)), factor_of(load(b, start + 1))
    high = high_product(p, q)
    other = high_product(r, s)
    if high == other:
        high = p * q
        other = r * s
    if high == other:
        return 0
    return 1 - 2 * less_unsigned(high, other)

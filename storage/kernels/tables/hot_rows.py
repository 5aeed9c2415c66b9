"""Rows of a spilled table that change often, gathered in its first quarter: there they share pages that stay in memory.

A changed row brings its page into memory. Rows that change often lie anywhere, so each would keep a page of rows that
seldom change. Each row has a bit that its change sets. The bits are cleared in turn, so that a bit tells of about as
many changes as the quarter has rows, and what it was before is kept. While pages are missing, a row behind the quarter
that changes while its bit is set, and was before, is exchanged with a row of the quarter whose bit is neither.

An exchange changes the numbers of two rows, and only their slots name these: a table with indexes, or a group table, is
left alone. So is a table with a write buffer, where rows that change often stay in the buffer. Rows without a positive
count stay, as the list of dirty rows names them. A changed row costs O(1): at most 16 rows are passed to find one
without a bit.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    HOT_BITS,
    HOT_CLEARED,
    HOT_HAND,
    HOT_WORDS,
    INDEXES,
    KEYS,
    LIMBS,
    MASK,
    OWNER,
    ROWS,
    SLOTS,
    USED,
    WIDTH,
)
from sqlfront.storage.kernels.memory import calloc, free, load, store
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.tables.hashing import hash_words
from sqlfront.storage.kernels.tables.read_ahead import row_of

HOT_SHARE, _PASSED = 4, 16
# So many changes clear a word: as many as a quarter of the table's rows clear all.
_CHANGES = 64 // HOT_SHARE


@kernel("void(int64,int64,int64)")
def gather_hot(table, hashes, count):
    """Note that the rows of `count` hashes, but negative ones, change, and bring those that change often into the
    table's first quarter."""
    used = load(table, USED)
    hot = used // HOT_SHARE
    if hot == 0 or load(table, INDEXES) > 0 or load(table, OWNER) != 0:
        return
    bits = bits_of(table)
    words = load(table, HOT_WORDS)
    clear_some(table, (used + 63) // 64, count // _CHANGES + 1)
    for i in range(count):
        h = load(hashes, i)
        row = row_of(table, h) if h >= 0 else -1
        if row < 0:
            continue
        if row >= hot and is_hot(bits, words, row):
            other = next_unchanged(table, hot)
            if other >= 0 and exchange(table, row, h, other):
                row = other
        set_bit(bits, row)


@kernel("int64(int64)")
def bits_of(table):
    """The address of the bits of a table's rows."""
    used = load(table, USED)
    if load(table, HOT_WORDS) * 64 < used:
        forget_hot(table)
        store(table, HOT_WORDS, used // 32 + 1)  # The table may double before there are more.
        store(table, HOT_BITS, calloc(2 * (used // 32 + 1), 8))
    return load(table, HOT_BITS)


@kernel("void(int64,int64)")
def set_bit(bits, row):
    """Note that a row changes."""
    store(bits, row >> 6, load(bits, row >> 6) | (1 << (row & 63)))


@kernel("void(int64)")
def forget_hot(table):
    """Give back the bits of a table's rows."""
    free(load(table, HOT_BITS))
    store(table, HOT_BITS, 0)
    store(table, HOT_WORDS, 0)


@kernel("boolean(int64,int64)")
def has_changed(bits, row):
    """Whether a row's bit is set."""
    return load(bits, row >> 6) & (1 << (row & 63)) != 0


@kernel("boolean(int64,int64,int64)")
def is_hot(bits, words, row):
    """Whether a row's bit is set, and was before it was cleared last; there are `words` words of bits."""
    return has_changed(bits, row) and has_changed(bits + 8 * words, row)


@kernel("boolean(int64,int64,int64)")
def is_warm(bits, words, row):
    """Whether a row's bit is set, or was before it was cleared last."""
    return has_changed(bits, row) or has_changed(bits + 8 * words, row)


@kernel("void(int64,int64,int64)")
def clear_some(table, words, count):
    """Clear the next `count` of the first words, in turn; what they told is kept until they are cleared again."""
    place = load(table, HOT_CLEARED)
    bits = load(table, HOT_BITS)
    for _ in range(count):
        place = place + 1 if place + 1 < words else 0
        store(bits, load(table, HOT_WORDS) + place, load(bits, place))
        store(bits, place, 0)
    store(table, HOT_CLEARED, place)


@kernel("int64(int64,int64)")
def next_unchanged(table, hot):
    """The next of the first `hot` rows, in turn, whose bit is not set; -1 if it is set in all of the next 16."""
    hand = load(table, HOT_HAND)
    found = -1
    for _ in range(_PASSED):
        hand = hand + 1 if hand + 1 < hot else 0
        if not is_warm(load(table, HOT_BITS), load(table, HOT_WORDS), hand):
            found = hand
            break
    store(table, HOT_HAND, hand)
    return found


@kernel("boolean(int64,int64,int64,int64)")
def exchange(table, row, h, other):
    """Exchange a row, of hash `h`, with another, if both count; whether they do."""
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    width = load(table, WIDTH)
    a = load(table, ROWS) + row * width * 8
    b = load(table, ROWS) + other * width * 8
    if sign_of(a, keys, limbs) <= 0 or sign_of(b, keys, limbs) <= 0:
        return False
    other_h = hash_words(b, keys)
    place = slot_of(table, h, row)
    other_place = slot_of(table, other_h, other)
    if place < 0 or other_place < 0:
        return False
    slots = load(table, SLOTS)
    store(slots, place, (h << 32) | (other + 1))
    store(slots, other_place, (other_h << 32) | (row + 1))
    for i in range(width):
        word = load(a, i)
        store(a, i, load(b, i))
        store(b, i, word)
    return True


@kernel("int64(int64,int64,int64)")
def slot_of(table, h, row):
    """The place of the slot of a row whose hash is h; -1 if no slot leads to it."""
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    i = h & mask
    while load(slots, i) != 0:
        if load(slots, i) == (h << 32) | (row + 1):
            return i
        i = (i + 1) & mask
    return -1

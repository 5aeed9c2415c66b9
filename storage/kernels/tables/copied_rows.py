"""Copying the rows of a table into one with the same key and values, and other indexes: no key is looked up."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    CHUNK,
    INDEX_ENTRY,
    INDEX_LIST,
    INDEXES,
    KEYS,
    LIMBS,
    LIVE,
    MASK,
    REFERENCES,
    ROWS,
    SLOTS,
    USED,
    VALUES,
    WIDTH,
)
from sqlfront.storage.kernels.memory import load, memcpy, store
from sqlfront.storage.kernels.tables.hash_table import count_references, link, reserve, resize_slots
from sqlfront.storage.kernels.tables.hashing import hash_places
from sqlfront.storage.kernels.tables.subtree_sums import forget_entries


@kernel("void(int64,int64,int64)")
def copy_rows(table, scratch, other):
    """Copy all rows into an empty table; they keep their numbers, so the slots can be copied too.

    The other table has no freed row. No index of this one adds up values, and none is ranked.
    """
    forget_entries(table)
    used = load(other, USED)
    size = load(other, MASK) + 1
    reserve(table, used)
    resize_slots(table, size)
    memcpy(load(table, SLOTS), load(other, SLOTS), size * 8)
    store(table, LIVE, used)
    store(table, USED, used)
    own = load(table, KEYS) + load(table, VALUES) * load(table, LIMBS)
    width = load(table, WIDTH)
    indexes = load(table, INDEXES)
    for row in range(used):
        address = load(table, ROWS) + row * width * 8
        memcpy(address, load(other, ROWS) + row * load(other, WIDTH) * 8, own * 8)
        for i in range(own, width):
            store(address, i, 0)
        for x in range(indexes):
            entry = load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8
            if row % CHUNK == 0:
                reserve(load(entry, 0), CHUNK)
            link(table, scratch, row, x, hash_places(address, entry, INDEX_ENTRY, load(entry, 1)))
        if load(table, REFERENCES) > 0:
            count_references(table, address, 1)

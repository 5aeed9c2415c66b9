"""Look-ups of many keys at once, for reading: which row of a table has each key."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import ROWS, WIDTH
from sqlfront.storage.kernels.memory import load, store
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_places


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def find_rows(table, scratch, keys, width, rows, places, count, absent, out):
    """The address of the row whose key is the words of keys[i] at `places`, or `absent`, to `out` for each row i."""
    for i in range(rows):
        key = keys + i * width * 8
        row = find(table, scratch, hash_places(key, places, 0, count), key, places, 0)
        address = absent
        if row >= 0:
            address = load(table, ROWS) + row * load(table, WIDTH) * 8
        store(out, i, address)

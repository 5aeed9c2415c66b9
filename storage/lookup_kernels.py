"""Look-ups of many keys at once, for reading: which row of a table has each key."""

from __future__ import annotations

from storage.hash_kernels import hash_places
from storage.jit import kernel
from storage.layout import ROWS, WIDTH
from storage.memory import load, store
from storage.table_kernels import find


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

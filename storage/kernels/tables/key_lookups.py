"""Look-ups by key, for reading: which row of a table has a key, or each of many keys."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, ROWS, VALUES, WIDTH
from sqlfront.storage.kernels.memory import load, store
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_places, hash_words


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


@kernel("int64(int64,int64,int64,int64)", held=True)
def copy_row(table, scratch, key, out):
    """Copy the key words and values of the row with a key to `out`; 0 if there is none.

    It keeps the GIL: it is over before the GIL would have been given away.
    """
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    row = find(table, scratch, hash_words(key, keys), key, 0, 0)
    if row < 0:
        return 0
    address = load(table, ROWS) + row * load(table, WIDTH) * 8
    if sign_of(address, keys, limbs) == 0:
        return 0
    for i in range(keys + load(table, VALUES) * limbs):
        store(out, i, load(address, i))
    return 1

"""Rows of one table found by their keys again and again: nothing is made for a look-up but its answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables.hash_table import find, hash_words
from sqlfront.storage.kernels.tables.upkeep import copy_rows
from sqlfront.storage.stores.table import Table


class RowFinder:
    """Valid while the table has this width."""

    def __init__(self, table: Table) -> None:
        self._table, self._address, self._keys = table, table.address, table.keys
        self._words = np.zeros(table.keys + 1, np.int64)
        self._scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        self._found = np.zeros(table.keys + table.values * table.limbs, np.int64)
        buffers = (self._words, self._scratch, self._found)
        self._word_address, self._scratch_address, self._found_address = (one.ctypes.data for one in buffers)
        self._hash, self._find, self._copy = hash_words.entry, find.entry, copy_rows.entry

    def find(self, key: Sequence[int]) -> list[int] | None:
        """The key words and values of the row with this key; None if there is none. O(1)."""
        words, address = self._words, self._word_address
        for place, word in enumerate(key):
            words[place] = word
        row = self._find(self._address, self._scratch_address, self._hash(address, self._keys), address, 0, 0)
        if row < 0 or not self._copy(self._address, row, 1, self._found_address):
            return None
        found: list[int] = self._found.tolist()
        return found

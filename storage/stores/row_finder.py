"""Rows of one table found by their keys again and again: nothing is made for a look-up but its answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables.key_lookups import copy_row
from sqlfront.storage.stores.table import Table


class RowFinder:
    """Valid while the table has this width."""

    def __init__(self, table: Table) -> None:
        self._table, self._copy = table, copy_row.entry
        words = np.zeros(table.keys + 1, np.int64)
        scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        found = np.zeros(table.keys + table.values * table.limbs, np.int64)
        self._buffers = scratch, words, found
        self._addresses = table.address, *(int(one.ctypes.data) for one in self._buffers)
        # Memory views take and give Python's integers in half the time of arrays.
        self._words, self._found = words.data, found.data

    def find(self, key: Sequence[int]) -> list[int] | None:
        """The key words and values of the row with this key; None if there is none. O(1)."""
        words = self._words
        for place, word in enumerate(key):
            words[place] = word
        return self._found.tolist() if self._copy(*self._addresses) else None

"""Filling a table from another one with the same keys, without a look-up for each row."""

from __future__ import annotations

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import copied_rows
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.words import words_at


def can_be_copied(table: Table, other: Table) -> bool:
    """Whether an empty table takes the other's keys and counts as they are, and needs nothing added up or ranked."""
    counted = (table.values, table.limbs, other.values, other.limbs) == (1, 1, 1, 1)
    alike = counted and table.keys == other.keys and other.used == other.live
    return alike and not table.rank_words and not any(group.values for group in table.groups)


def copy(table: Table, other: Table, scratch: int, *, signs: bool) -> None:
    """Fill an empty table with the rows of another one, or with the signs of their counts. O(rows)."""
    copied_rows.copy_rows(table.address, scratch, other.address)
    if signs:
        width = int(table.header[at.WIDTH])
        counts = words_at(table.header[at.ROWS], table.used * width).reshape(-1, width)[:, table.keys]
        np.sign(counts, out=counts)

"""Partial tables: threads fill them side by side in the place of one table, and their rows are then added to it."""

from __future__ import annotations

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import merged_tables
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.words import words_at

_MOST = 1 << 55
"""The sum of such values of 2**8 tables fits a word."""


def can_be_divided(table: Table) -> bool:
    """Whether partial tables can be filled in its place: reference counts are written by one thread alone."""
    return not (table.rank_words or table.unswept or table.counts_references)


def partial_table(table: Table) -> Table:
    """An empty table with the same key and values; it has no indexes."""
    return Table(table.keys, table.values, table.limbs, name=table.name)


def merge(table: Table, partial_tables: list[Table], scratch: int) -> None:
    """Add the rows of partial tables, which have never been swept, to a table. O(rows). No value is `cramped`."""
    for one in partial_tables:
        merged_tables.merge(table.address, scratch, one.address)


def cramped(table: Table, groups: list[Table]) -> bool:
    """Whether a value is so great that those of several tables, or all of one of the `groups` that they will be in, may
    not fit when added up. O(rows)."""
    limbs, width, used = table.limbs, table.width, table.used
    rows = words_at(table.header[at.ROWS], used * width).reshape(used, width)
    tops = np.abs(rows[:, table.keys + limbs - 1 : table.keys + table.values * limbs : limbs].astype(np.float64))
    summed = any(group.values for group in groups)
    return used > 0 and float((tops.sum(axis=0) if summed else tops).max()) >= _MOST

"""Rows of a table by their addresses, many at once: found by their keys, listed by groups, read word by word.

An address is 0 where there is no row, and valid until the table changes. `scratch` counts the steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import python_rows
from sqlfront.storage.kernels.tables import group_reads, key_lookups, nearest, range_scan
from sqlfront.storage.kernels.tables.upkeep import free_words
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.words import words_at

_object_word = entry_point(python_rows.object_word)
_DATA = object.__basicsize__ // 8
"""The word of an array, behind what all objects have, with the address of its data (NumPy C-API, PyArrayObject)."""


def address_of(words: np.ndarray) -> int:
    """Where an array's words lie. A tenth of the time that `ctypes.data` takes."""
    address: int = _object_word(words, _DATA)
    return address


def find_rows(table: Table, keys: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """The rows with these key words, of shape (rows, words). O(1) each."""
    keys, places, found = np.ascontiguousarray(keys), np.arange(table.keys), np.empty(len(keys), np.int64)
    key_lookups.find_rows(
        table.address, address_of(scratch), address_of(keys), keys.shape[1], len(keys), address_of(places), table.keys,
        0, address_of(found),
    )  # fmt: skip
    return found


def list_members(table: Table, index: int, groups: np.ndarray, scratch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many rows each group of an index has, and all of them, group after group. O(1) a row."""
    sizes = group_sizes(table.groups[index], groups)
    found = np.empty(int(sizes.sum()), np.int64)
    group_reads.members(
        table.address, table.groups[index].address, index, address_of(groups), len(groups), address_of(scratch),
        address_of(found),
    )  # fmt: skip
    return sizes, found


def list_runs(
    table: Table, index: int, begins: np.ndarray, ends: np.ndarray, scratch: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many rows each run from one row of a group of an index to a later one has, and all of them. O(1) a row."""
    begins, ends = np.ascontiguousarray(begins), np.ascontiguousarray(ends)
    sizes = np.empty(len(begins), np.int64)

    def listed(out: int) -> int:
        found: int = group_reads.runs(
            table.address, index, address_of(begins), address_of(ends), len(begins), address_of(scratch),
            address_of(sizes), out,
        )  # fmt: skip
        return found

    found = np.empty(listed(0), np.int64)
    listed(address_of(found))
    return sizes, found


def first_passing(table: Table, group: int, row: np.ndarray, test: np.ndarray, scratch: np.ndarray) -> int:
    """The first row of the group at an address, of the only index of a table, that passes a row's test; 0 if none does.
    O(log group) expected."""
    root = nearest.root_of(table.groups[0].address, group)
    member = range_scan.first_passing(table.address, address_of(scratch), root, address_of(test), address_of(row))
    return 0 if member == 0 else int(table.header[at.ROWS]) + (member - 1) * table.width * 8


def list_between(
    table: Table, group: int, row: np.ndarray, end: np.ndarray, test: np.ndarray, scratch: np.ndarray
) -> np.ndarray:
    """The rows of the group at an address, of the only index of a table, that pass a row's test and fail that of the
    row at the end. O(log group) expected, and a step for each."""
    words = np.zeros(at.LIST_WORDS, np.int64)
    nearest.list_range(
        table.address, 0, table.groups[0].address, group, address_of(row), address_of(test), address_of(end), 0,
        address_of(scratch), address_of(words),
    )  # fmt: skip
    pairs = words_at(int(words[at.LIST_AT]), int(words[at.LIST_USED])).reshape(-1, 2)
    found = pairs[:, 0].copy()
    if words[at.LIST_ROOM]:
        free_words(int(words[at.LIST_AT]))
    return found


def group_sizes(group: Table, groups: np.ndarray) -> np.ndarray:
    """How many rows each group has, of a group table. O(1) each."""
    sizes = np.empty(len(groups), np.int64)
    group_reads.sizes(group.address, address_of(groups), len(groups), address_of(sizes))
    return sizes


def gather_words(addresses: np.ndarray, places: Sequence[int], absent: int = 0) -> np.ndarray:
    """The words at some places of each row, `absent` where there is none; shape (places, rows)."""
    addresses, wanted = np.ascontiguousarray(addresses, np.int64), np.array(places, np.int64)
    found = np.empty((len(wanted), len(addresses)), np.int64)
    group_reads.words_of(
        address_of(addresses), len(addresses), address_of(wanted), len(wanted), absent, address_of(found)
    )
    return found

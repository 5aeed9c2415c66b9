"""Cursors over the rows of an order by their keys: of one ranked tree, or of one of the parts that make up its rows.

Cursors compose: a window, a start and a merge take a cursor, or several, and are one.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Protocol

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import any_k as kernels

_open_read, _next_answers = entry_point(kernels.open_read), entry_point(kernels.next_answers)

Block = tuple[np.ndarray, np.ndarray]
"""Rows: the addresses of the parts that make up each row, and its keys."""


class Measured(Protocol):
    """What a reader costs."""

    @property
    def steps(self) -> int:
        """Elementary steps so far: slots looked at, cells compared."""
        ...

    @property
    def cells(self) -> int:
        """How many cells have been made: what it keeps in memory."""
        ...


class Cursor(Measured, Protocol):
    """Rows of an order, read in that order."""

    def fetch(self, capacity: int) -> Block:
        """The next rows, up to `capacity`; none at the end."""
        ...


class CursorOver:
    """A cursor that reads another one, or a walk, whose work is its own."""

    def __init__(self, read: Measured) -> None:
        self._read = read

    @property
    def steps(self) -> int:
        return self._read.steps

    @property
    def cells(self) -> int:
        return self._read.cells


class TreeCursor:
    """The rows of one ranked tree, which `plan` describes to the kernels, each of `nodes` addresses and `key` rank
    words. `begin` is where the root's rows that are read begin, as the kernels read it (0: with the first).

    O(log N) a row. It changes nothing but its own memory, which grows by a constant number of cells with each row.
    """

    def __init__(self, plan: np.ndarray, nodes: int, key: int, begin: int) -> None:
        self._plan, self._nodes, self._key = plan, nodes, key
        self._read = _open_read(plan.__array_interface__["data"][0], begin)
        self._finalizer = weakref.finalize(self, kernels.close_read, self._read)

    @property
    def steps(self) -> int:
        return ctypes.c_int64.from_address(self._read + 8 * at.STEPS).value

    @property
    def cells(self) -> int:
        return ctypes.c_int64.from_address(self._read + 8 * kernels.CELLS_USED).value

    def skip_group(self) -> None:
        """Go on with the root's next group."""
        ctypes.c_int64.from_address(self._read + 8 * kernels.CHAIN).value = -1

    def fetch(self, capacity: int) -> Block:
        addresses, keys = np.empty((capacity, self._nodes), np.int64), np.empty((capacity, self._key), np.int64)
        places = (addresses.__array_interface__["data"][0], keys.__array_interface__["data"][0])
        rows = _next_answers(self._read, capacity, *places)
        return addresses[:rows], keys[:rows]


class PickedCursor(CursorOver):
    """The rows of a cursor as words: `places` has (number of an address, word) for each."""

    def __init__(self, cursor: Cursor, places: np.ndarray) -> None:
        super().__init__(cursor)
        self._cursor, self._places = cursor, places

    def fetch(self, capacity: int) -> Block:
        addresses, keys = self._cursor.fetch(capacity)
        return addresses[:, self._places[:, 0]] + 8 * self._places[:, 1], keys

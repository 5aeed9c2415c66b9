"""Where large arrays live instead of memory: in temporary files, which the system writes when it needs room.

`kernels/tables/spilled_memory.py` makes the files of tables, this module those of dictionaries. A file has no name
and goes with its array.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from typing import Any

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import upkeep
from sqlfront.storage.stores.table import Table

LEAST = 1 << 20
"""The bytes of the smallest array that is spilled."""


class Spill:
    """The spill into a directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        path = os.fsencode(os.path.join(directory, "sqlfront-XXXXXX")) + b"\0"
        self._path = np.frombuffer(path + bytes(-len(path) % 8), np.int64)
        self.words = np.zeros(at.SPILL_WORDS, np.int64)
        self.words[at.SPILL_PATH], self.words[at.SPILL_PATH_WORDS] = self._path.ctypes.data, len(self._path)
        self.words[at.SPILL_LEAST] = LEAST
        self._arrays: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()

    @property
    def has_failed(self) -> bool:
        """Whether an array has found no room since the last `take_error`, and is in memory."""
        return bool(self.words[at.SPILL_ERROR])

    def take_error(self) -> str | None:
        """Why an array has found no room since the last call; None if all have."""
        number, self.words[at.SPILL_ERROR] = int(self.words[at.SPILL_ERROR]), 0
        return os.strerror(number) if number else None

    def keep(self, table: Table) -> None:
        """Spill a table and its groups from now on. They must not outlive this. O(rows) for what is in memory."""
        for one in (table, *table.groups):
            upkeep.spill_to(one.address, int(self.words.ctypes.data))

    def zeros(self, count: int, kind: type) -> np.ndarray:
        """A new array, spilled if it is large and finds room."""
        size = count * np.dtype(kind).itemsize
        if size < self.words[at.SPILL_LEAST]:
            return np.zeros(count, kind)
        try:
            with tempfile.TemporaryFile(prefix="sqlfront-", dir=self.directory) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                array: np.ndarray = np.frombuffer(mmap.mmap(file.fileno(), size), kind)
        except OSError as error:
            self.words[at.SPILL_ERROR] = error.errno or errno.EIO
            return np.zeros(count, kind)
        self._arrays[id(array)] = array
        return array

    def spilled(self, *arrays: np.ndarray) -> int:
        """The bytes of those of the arrays that are spilled."""
        return sum(array.nbytes for array in arrays if self._arrays.get(id(array)) is array)


def spilled_bytes(table: Table) -> int:
    """How many of a table's `bytes()` are spilled, groups included."""
    header: Any = table.header
    rows = header[at.USED] * header[at.WIDTH] if header[at.ROWS_MAPPED] & at.SPILLED else 0
    slots = header[at.MASK] + 1 if header[at.SLOTS_MAPPED] & at.SPILLED else 0
    return int(8 * (rows + slots)) + sum(map(spilled_bytes, table.groups))

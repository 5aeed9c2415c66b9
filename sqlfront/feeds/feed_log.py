"""The changes a feed holds: Arrow tables of whole epochs, oldest first."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

_PACKED = 256


class FeedLog:
    """The changes of all epochs after `since`, as long as they are held; `rows` of them.

    A table of one row takes seven kilobytes, so every 256 tables are packed into one.
    """

    def __init__(self, since: int) -> None:
        self.since, self.rows = since, 0
        self._tables: deque[pa.Table] = deque()
        self._single = 0

    def add(self, table: pa.Table, most: int) -> None:
        """Note an epoch's change. Of those before it the oldest go until at most `most` rows are held. O(rows)."""
        import pyarrow as pa

        self._tables.append(table)
        self._single += 1
        self.rows += table.num_rows
        while self.rows > most and (len(self._tables) > 1 or _several(self._tables[0])):
            self._drop_oldest()
        self._single = min(self._single, len(self._tables))
        if self._single == _PACKED:
            last = [self._tables.pop() for _ in range(_PACKED)]
            self._tables.append(pa.concat_tables(last[::-1]).combine_chunks())
            self._single = 0

    def after(self, version: int) -> list[pa.Table]:
        """The changes of the epochs after `version`, oldest first, one or more epochs to a table. O(tables found)."""
        found: list[pa.Table] = []
        for table in reversed(self._tables):
            if _version(table, -1) <= version:
                break
            first = 0 if _version(table, 0) > version else epoch_end(table, version)
            found.append(table.slice(first))
        return found[::-1]

    def clear(self) -> None:
        """Hold nothing more."""
        self._tables.clear()
        self.rows = self._single = 0

    def _drop_oldest(self) -> None:
        oldest = self._tables.popleft()
        self.since = _version(oldest, 0)
        end = epoch_end(oldest, self.since)
        self.rows -= end
        if end < oldest.num_rows:
            self._tables.appendleft(oldest.slice(end))


def epoch_end(table: pa.Table, version: int) -> int:
    """How many rows of changes, which are in order of epochs, are of epochs up to `version`. O(log rows)."""
    versions = table.column("_commit_version").combine_chunks().to_numpy()
    return int(np.searchsorted(versions, version, side="right"))


def _version(table: pa.Table, row: int) -> int:
    return int(table.column("_commit_version")[row].as_py())


def _several(table: pa.Table) -> bool:
    return _version(table, 0) < _version(table, -1)

"""A scan of a view with window functions: along one order, each copy of a row apart."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sqlfront.maintenance.program.metering import Meter, Metered
from sqlfront.maintenance.program.rows import BATCH
from sqlfront.maintenance.program.shapes import COUNT, Part
from sqlfront.maintenance.windows.located_rows import LocatedRows
from sqlfront.maintenance.windows.whole_partitions import WholePartitions
from sqlfront.maintenance.windows.window_stores import KeptOrder, WindowStores
from sqlfront.storage.stores.ordered_rows import OrderedRows

_CHUNK = 1 << 16
"""Partitions are read together until they have so many rows."""


class CopiesApart(Metered):
    """The parts of rows each copy of which is a row of its own."""

    rows = 0

    def values(self, part: Part) -> np.ndarray:
        """Each copy is there once; no other part is kept."""
        assert part == COUNT
        return np.ones((self.rows, 1), np.int64)

    def all_ones(self, part: Part) -> bool:
        return True


class OrderWalk(CopiesApart):
    """The rows of a view in one of its orders; a `RowSource`. `copies` has the number of each row's copy."""

    def __init__(self, kept: KeptOrder, meter: Meter, key: list[int] | None = None) -> None:
        """All rows, or those of the partition with these key words."""
        super().__init__(meter)
        self._kept, self._steps = kept, 0
        rows = OrderedRows(kept.source.store.table)
        self._groups = rows.all_groups() if key is None else rows.groups(np.array([key], np.int64))
        self._sizes = rows.sizes(self._groups)
        self._next = self._first = self._end = 0
        self._whole: WholePartitions | None = None

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance by up to `capacity` rows; the number of those now in the batch, 0 at the end."""
        self._first = self._end
        if self._whole is None or self._first == self._whole.rows:
            self._read_on()
            if self._whole is None:
                self.rows = 0
                return 0
        self._end = min(self._first + capacity, self._whole.rows)
        self.rows = self._end - self._first
        return self.rows

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def copies(self) -> np.ndarray:
        assert self._whole is not None
        return self._whole.copy_numbers[self._first : self._end]

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the rows of the batch."""
        assert self._whole is not None
        return [self._whole.words(place)[self._first : self._end] for place in self._kept.places((variable,))]

    def located(self, kept: KeptOrder) -> LocatedRows | None:
        """Where the rows of the batch stand in an order; None for another one than that of the walk."""
        if kept is not self._kept:
            return None
        assert self._whole is not None
        return self._whole.located(slice(self._first, self._end))

    def _read_on(self) -> None:
        """Read the next partitions, if there are any."""
        first, rows = self._next, 0
        while self._next < len(self._groups) and (rows == 0 or rows + self._sizes[self._next] <= _CHUNK):
            rows += int(self._sizes[self._next])
            self._next += 1
        self._first, self._whole = 0, None
        if self._next > first:
            self._whole = WholePartitions(self._kept, self._groups[first : self._next])
            self._steps += self._whole.steps
            self._tell()


def partition_walk(stores: WindowStores, where: Mapping[str, tuple[int, ...]], meter: Meter) -> OrderWalk | None:
    """The rows of the partition that has these codes, in an order whose partitions they tell; None without one."""
    for kept in stores.kept:
        if kept.order.partition and where.keys() >= set(kept.order.partition):
            return OrderWalk(kept, meter, [word for name in kept.order.partition for word in where[name]])
    return None

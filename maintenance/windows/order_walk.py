"""A scan of a view with window functions: along one order, each copy of a row apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from sqlfront.maintenance.program.metering import Meter, Metered
from sqlfront.maintenance.program.rows import BATCH
from sqlfront.maintenance.program.shapes import COUNT, Part
from sqlfront.maintenance.windows.located_rows import LocatedRows
from sqlfront.maintenance.windows.whole_partitions import WholePartitions
from sqlfront.maintenance.windows.window_stores import KeptOrder, WindowStores
from sqlfront.storage.stores.ordered_rows import OrderedRows

_CHUNK = 1 << 16
"""Partitions are read together that have so many rows."""


class CopiesApart(Metered):
    """The parts of rows each copy of which is a row of its own."""

    rows = 0

    def values(self, part: Part) -> np.ndarray:
        """Each copy is there once; no other part is kept."""
        assert part == COUNT
        return np.ones((self.rows, 1), np.int64)

    def all_ones(self, part: Part) -> bool:
        return True


class OrderedBatch(CopiesApart):
    """Some rows of whole partitions; see `Rows`. `copies` has the number of each row's copy."""

    def __init__(self, whole: WholePartitions, places: slice, meter: Meter | None = None) -> None:
        super().__init__(meter)
        self._whole, self._places, self.rows = whole, places, places.stop - places.start

    @property
    def copies(self) -> np.ndarray:
        return self._whole.copy_numbers[self._places]

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable."""
        return [self._whole.words(place)[self._places] for place in self._whole.kept.places((variable,))]

    def located(self, kept: KeptOrder) -> LocatedRows | None:
        """Where the rows stand in an order; None for another one than that of the partitions."""
        return self._whole.located(self._places) if kept is self._whole.kept else None


class OrderWalk(OrderedBatch):
    """The rows of a view in one of its orders; a `RowSource`."""

    def __init__(self, kept: KeptOrder, meter: Meter, key: list[int] | None = None) -> None:
        """All rows, or those of the partition with these key words."""
        rows = OrderedRows(kept.source.store.table)
        self._groups = rows.all_groups() if key is None else rows.groups(np.array([key], np.int64))
        self._ends = np.cumsum(rows.sizes(self._groups))
        self._kept, self._steps, self._next = kept, 0, 0
        super().__init__(WholePartitions(kept, self._groups[:0]), slice(0, 0), meter)

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance by up to `capacity` rows; the number of those now in the batch, 0 at the end."""
        first = self._places.stop
        if first == self._whole.rows:
            self._read_on(max(capacity, _CHUNK))
            first = 0
        end = min(first + capacity, self._whole.rows)
        self._places, self.rows = slice(first, end), end - first
        return self.rows

    def batches(self, capacity: int) -> Iterator[OrderedBatch]:
        """All further rows, in batches that stay as they are while the walk goes on."""
        while self.next(capacity):
            yield OrderedBatch(self._whole, self._places)

    @property
    def total(self) -> int:
        """How many rows the whole walk has, copies counted once."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def steps(self) -> int:
        return self._steps

    def _read_on(self, rows: int) -> None:
        """Read the next partitions that have so many rows together, at least one; none at the end."""
        first = self._next
        before = self._ends[first - 1] if first else 0
        last = int(np.searchsorted(self._ends, before + rows, side="right"))
        self._next = min(max(last, first + 1), len(self._groups))
        self._whole = WholePartitions(self._kept, self._groups[first : self._next])
        self._steps += self._whole.steps
        self._tell()


def partition_walk(stores: WindowStores, where: Mapping[str, tuple[int, ...]], meter: Meter) -> OrderWalk | None:
    """The rows of the partition that has these codes, in an order whose partitions they tell; None without one."""
    for kept in stores.kept:
        if kept.order.partition and where.keys() >= set(kept.order.partition):
            return OrderWalk(kept, meter, [word for name in kept.order.partition for word in where[name]])
    return None

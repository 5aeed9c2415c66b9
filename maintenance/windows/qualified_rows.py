"""The rows that QUALIFY leaves by their ranks: one range of positions in each partition, found along the order's tree.

Functions of positions never go back along their order. So a comparison with a number is met from one position on, or up
to one. The position is where a number of rows, or of groups of peers, ends: O(log partition). Shares are rounded: the
range has a row more on each side, which QUALIFY leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sqlfront.maintenance.program.metering import Meter
from sqlfront.maintenance.program.rows import BATCH
from sqlfront.maintenance.windows.located_rows import LocatedRows
from sqlfront.maintenance.windows.order_walk import CopiesApart
from sqlfront.maintenance.windows.sought_rows import SoughtRows
from sqlfront.maintenance.windows.window_stores import KeptOrder, WindowStores
from sqlfront.planner.model.window_functions import RankBound, WindowValue
from sqlfront.storage.stores.ordered_rows import OrderedRows

STEPS_SOUGHT = 8
"""Rows of whole partitions are read in the time that one row takes along a tree."""


class QualifiedWalk(CopiesApart):
    """The rows of a view within bounds of ranks in an order; a `RowSource`. O(log partition) a row."""

    def __init__(
        self, kept: KeptOrder, rows: OrderedRows, groups: np.ndarray, bounds: Sequence[RankBound], meter: Meter
    ) -> None:
        """The rows of these partitions."""
        super().__init__(meter)
        self._kept, self._ordered, self._groups = kept, rows, groups
        self._starts, ends = qualified_ranges(kept, rows, groups, bounds)
        self._counts, self._next = np.maximum(ends - self._starts, 0), 0
        self._ends = np.cumsum(self._counts)
        self._addresses, self.copies = np.empty(0, np.int64), np.empty(0, np.int64)

    @property
    def is_short(self) -> bool:
        """Whether going through all rows would take longer."""
        return bool(self._counts.sum() * STEPS_SOUGHT < self._ordered.copies(self._groups).sum())

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance by up to `capacity` rows; the number of those now in the batch, 0 at the end."""
        total = int(self._ends[-1]) if len(self._ends) else 0
        places = np.arange(self._next, min(self._next + capacity, total))
        owners = np.searchsorted(self._ends, places, side="right")
        positions = places - (self._ends - self._counts)[owners] + self._starts[owners]
        self._addresses, self.copies = self._ordered.select(self._groups[owners], positions)
        self._next += len(places)
        self.rows = len(places)
        self._tell()
        return self.rows

    @property
    def steps(self) -> int:
        return self._ordered.steps

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the rows of the batch."""
        return list(self._ordered.gather(self._addresses, self._kept.places((variable,))))

    def located(self, kept: KeptOrder) -> LocatedRows | None:
        """Where the rows of the batch stand in an order; None for another one than that of the walk."""
        return SoughtRows(kept, self._ordered, self._addresses, self.copies) if kept is self._kept else None


def qualified_walk(stores: WindowStores, where: Mapping[str, tuple[int, ...]], meter: Meter) -> QualifiedWalk | None:
    """The rows that QUALIFY leaves by their ranks; of one partition, if `where` has its codes. None if there are no
    bounds, or another walk goes through all rows sooner."""
    bounds = stores.windows.qualified
    if not bounds:
        return None
    kept = stores.kept[bounds[0].value.order]
    rows, partition = OrderedRows(kept.source.store.table), kept.order.partition
    if partition and where.keys() >= set(partition):
        groups = rows.groups(np.array([[word for name in partition for word in where[name]]], np.int64))
    else:
        groups = rows.all_groups()
    walk = QualifiedWalk(kept, rows, groups, bounds, meter)
    return walk if walk.is_short else None


def qualified_ranges(
    kept: KeptOrder, rows: OrderedRows, groups: np.ndarray, bounds: Sequence[RankBound]
) -> tuple[np.ndarray, np.ndarray]:
    """The positions of the first row of each group that is within bounds, and behind the last; perhaps a few more."""
    sizes = rows.copies(groups)
    starts, ends = np.zeros_like(sizes), sizes
    for bound in bounds:
        is_upper, value = bound.operator in ("<", "<="), bound.value
        edges = _Edges(kept, rows, groups, sizes, value.peers, slack=1 if is_upper else -1)
        if isinstance(bound.limit, float):
            edge = edges.of_share(value, bound.limit)
        else:
            edge = edges.of_number(value, bound.limit + (bound.operator in ("<=", ">")))
        edge = np.clip(edge, 0, sizes)
        starts, ends = (starts, np.minimum(ends, edge)) if is_upper else (np.maximum(starts, edge), ends)
    return starts, ends


class _Edges:
    """The positions in groups from which a function is at least a number."""

    def __init__(
        self, kept: KeptOrder, rows: OrderedRows, groups: np.ndarray, sizes: np.ndarray, peers: int, slack: int
    ) -> None:
        """Rows that tie in the first `peers` items are peers; positions of shares are by `slack` too large."""
        self._kept, self._rows, self._groups, self._sizes, self._slack = kept, rows, groups, sizes, slack
        self._words = len(kept.item_places(peers))

    def of_number(self, value: WindowValue, number: int) -> np.ndarray:
        """The first positions at which a function of whole numbers has reached a number."""
        match value.function:
            case "row_number":
                return self._filled(number - 1)
            case "ntile":
                buckets = min(max(number - 1, 0), value.number)
                return self._sizes // value.number * buckets + np.minimum(buckets, self._sizes % value.number)
            case "rank":
                return self._first_of_peers_from(self._filled(number - 1))
            case _:
                return self._rows.peer_starts(self._groups, self._filled(number - 1), self._kept.peers(value.peers))

    def of_share(self, value: WindowValue, share: float) -> np.ndarray:
        """The first positions at which PERCENT_RANK or CUME_DIST has reached a share, about."""
        if value.function == "percent_rank":
            return self._first_of_peers_from(self._rounded(share, self._sizes - 1))
        position = self._rounded(share, self._sizes)
        return np.where(position > 0, self._peers(position - 1)[0], 0)

    def _rounded(self, share: float, of: np.ndarray) -> np.ndarray:
        """How many rows are a share of so many, by the slack too many."""
        number = np.clip(share * of, -1.0, self._sizes + 1.0)
        return np.asarray(np.floor(number) if self._slack < 0 else np.ceil(number), np.int64) + self._slack

    def _first_of_peers_from(self, position: np.ndarray) -> np.ndarray:
        """The first position, from one on, where peers begin."""
        start, end = self._peers(position)
        return np.where(position <= 0, 0, np.where(start == position, position, end))

    def _peers(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The frame of the peers of the row at a position; behind the last row where there is none."""
        rows, _ = self._rows.select(self._groups, position)
        there = rows != 0
        edges = (
            self._rows.positions_of(self._groups[there], rows[there], self._words, inclusive=inclusive)
            for inclusive in (False, True)
        )
        first, last = self._sizes.copy(), self._sizes.copy()
        first[there], last[there] = edges
        return first, last

    def _filled(self, position: int) -> np.ndarray:
        return np.full_like(self._sizes, max(min(position, 2**62), -1))

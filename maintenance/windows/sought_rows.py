"""Rows found in an order one by one, along its trees: for reads of few rows of large partitions. O(log partition) each.

DENSE_RANK, and MIN and MAX over long frames, have no sums below a tree's rows: they read whole partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from sqlfront.maintenance.windows.located_rows import Bounds
from sqlfront.maintenance.windows.range_edges import range_edge
from sqlfront.maintenance.windows.whole_partitions import PlacedRows, WholePartitions
from sqlfront.maintenance.windows.window_stores import KeptOrder
from sqlfront.maintenance.windows.window_values import frame_bounds
from sqlfront.planner.model.window_functions import WindowValue
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.ordered_rows import OrderedRows, frame_firsts

_LONGEST_FRAME = 64
"""Frames of so many rows, and so many groups of peers, are gone through row by row."""


class SoughtRows:
    """Copies of rows at some addresses; see `LocatedRows`."""

    def __init__(self, kept: KeptOrder, rows: OrderedRows, addresses: np.ndarray, copies: np.ndarray) -> None:
        self._kept, self._rows, self._addresses, self._copies = kept, rows, addresses, copies
        self._groups, self.position, self.size = rows.locate(addresses, copies)
        self._peers: dict[int, Bounds] = {}
        self._sums: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    @property
    def steps(self) -> int:
        """Rows visited so far."""
        return self._rows.steps

    def peers(self, items: int) -> Bounds:
        if items not in self._peers:
            self._peers[items] = self._peers_of(self._addresses, items)
        return self._peers[items]

    def dense_ranks(self, items: int) -> np.ndarray:
        return self._whole.dense_ranks(items)

    def group_edge(self, items: int, groups: int, behind: bool) -> np.ndarray:
        if abs(groups) > _LONGEST_FRAME:
            return self._whole.group_edge(items, groups, behind)
        start, end = self.peers(items)
        for _ in range(abs(groups)):
            position = end if groups > 0 else start - 1
            rows, _ = self._rows.select(self._groups, position)
            there = rows != 0
            first, last = self._peers_of(np.where(there, rows, self._addresses), items)
            edge = self.size if groups > 0 else np.zeros_like(start)
            start, end = np.where(there, first, edge), np.where(there, last, edge)
        return end if behind else start

    def range_edge(self, distance: int, behind: bool) -> np.ndarray:
        [codes] = self._words(self._addresses, self._kept.item_places(1))
        edge = range_edge(self._kept, self._rows, self._groups, codes, distance, behind)
        return np.where(codes == at.NULL_CODE, self.peers(1)[int(behind)], edge)

    def words(self, places: Sequence[int], positions: np.ndarray) -> list[np.ndarray]:
        rows, _ = self._rows.select(self._groups, positions)
        return self._words(rows, places)

    def sums(self, value: int, frame: Bounds) -> np.ndarray:
        start, end = frame
        known = next((found for first, last, found in self._sums if first is start and last is end), None)
        if known is None:
            known = self._rows.frame_sums(self._groups, start, end)
            self._sums.append((start, end, known))
        return known[:, value]

    def firsts(self, order: np.ndarray, places: Sequence[int], value: WindowValue) -> list[np.ndarray]:
        start, end = frame_bounds(value, self)
        lengths = end - start
        if int(lengths.max(initial=0)) > _LONGEST_FRAME:
            return self._whole.firsts(order, places, value)
        owners = np.repeat(np.arange(len(lengths)), lengths)
        ends = np.cumsum(lengths)
        positions = np.arange(len(owners)) - (ends - lengths)[owners] + start[owners]
        rows, _ = self._rows.select(self._groups[owners], positions)
        present = (self._rows.gather(rows, places[:1])[0] != at.NULL_CODE).astype(np.int64)
        found = frame_firsts(order, rows, present, ends - lengths, ends)
        return self._words(np.append(rows, 0)[found], places)

    @cached_property
    def _whole(self) -> PlacedRows:
        """The same rows in their whole partitions. O(rows of the partitions)."""
        whole = WholePartitions(self._kept, np.unique(self._groups))
        return whole.located(whole.places_of(self._addresses, self._copies))

    def _words(self, rows: np.ndarray, places: Sequence[int]) -> list[np.ndarray]:
        return list(self._rows.gather(rows, places))

    def _peers_of(self, rows: np.ndarray, items: int) -> Bounds:
        words = len(self._kept.item_places(items))
        first, last = (
            self._rows.positions_of(self._groups, rows, words, inclusive=inclusive) for inclusive in (False, True)
        )
        return first, last

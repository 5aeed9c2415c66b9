"""Rows found in an order one by one along its trees, for few rows of large partitions: O(log partition) each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlfront.maintenance.windows.located_rows import Bounds
from sqlfront.maintenance.windows.range_edges import range_edge
from sqlfront.maintenance.windows.window_stores import KeptOrder
from sqlfront.maintenance.windows.window_values import frame_bounds
from sqlfront.planner.model.window_functions import WindowValue
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.ordered_rows import OrderedRows


class SoughtRows:
    """Copies of rows at some addresses; see `LocatedRows`."""

    def __init__(self, kept: KeptOrder, rows: OrderedRows, addresses: np.ndarray, copies: np.ndarray) -> None:
        self._kept, self._rows, self._addresses, self._copies = kept, rows, addresses, copies
        self.groups, self.position, self.behind = rows.locate(addresses, copies)
        self.first = np.zeros(len(addresses), np.int64)
        self._peers: dict[int, Bounds] = {}
        self._dense_ranks: dict[int, np.ndarray] = {}
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
        if items not in self._dense_ranks:
            found = self._rows.peers_before(self.groups, self._addresses, self._kept.peers(items))
            self._dense_ranks[items] = found
        return self._dense_ranks[items]

    def group_edge(self, items: int, groups: int, behind: bool) -> np.ndarray:
        wanted = self.dense_ranks(items) + (groups + behind)
        return self._rows.peer_starts(self.groups, wanted, self._kept.peers(items))

    def range_edge(self, distance: int, behind: bool) -> np.ndarray:
        [codes] = self._words(self._addresses, self._kept.item_places(1))
        edge = range_edge(self._kept, self._rows, self.groups, codes, distance, behind)
        return np.where(codes == at.NULL_CODE, self.peers(1)[int(behind)], edge)

    def moved(self, distance: int) -> np.ndarray:
        return np.clip(self.position + distance, 0, self.behind)

    def words(self, places: Sequence[int], positions: np.ndarray) -> list[np.ndarray]:
        rows, _ = self._rows.select(self.groups, positions)
        return self._words(rows, places)

    def sums(self, value: int, frame: Bounds) -> np.ndarray:
        start, end = frame
        known = next((found for first, last, found in self._sums if first is start and last is end), None)
        if known is None:
            known = self._rows.frame_sums(self.groups, start, end)
            self._sums.append((start, end, known))
        return known[:, value]

    def extremes(self, variable: str, codec: Codec, value: WindowValue) -> list[np.ndarray]:
        start, end = frame_bounds(value, self)
        summary = self._kept.extremes(variable, value.function == "max")
        rows = self._rows.frame_extremes(self.groups, start, end, summary)
        return self._words(rows, self._kept.places((variable,)))

    def _words(self, rows: np.ndarray, places: Sequence[int]) -> list[np.ndarray]:
        return list(self._rows.gather(rows, places))

    def _peers_of(self, rows: np.ndarray, items: int) -> Bounds:
        words = len(self._kept.item_places(items))
        first, last = (
            self._rows.positions_of(self.groups, rows, words, inclusive=inclusive) for inclusive in (False, True)
        )
        return first, last

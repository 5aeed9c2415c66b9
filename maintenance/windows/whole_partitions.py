"""Whole partitions of an order as arrays: for reads that go through all rows of a partition. O(rows), once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from threading import RLock

import numpy as np

from sqlfront.maintenance.windows.located_rows import Bounds
from sqlfront.maintenance.windows.range_edges import range_edge
from sqlfront.maintenance.windows.window_stores import KeptOrder
from sqlfront.maintenance.windows.window_values import frame_bounds
from sqlfront.planner.model.window_functions import WindowValue
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.order import order_places
from sqlfront.storage.codecs.sums import from_integers, to_integers
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.ordered_rows import OrderedRows, frame_firsts, order_list
from sqlfront.storage.stores.spans import Places, Spans, moved_within, running_sums, sums_between, words_within


class WholePartitions:
    """The rows of some partitions, each copy apart, partition after partition, in their order.

    `partitions` are the spans of the partitions' `rows` rows. `steps` counts rows visited. Several threads may read the
    rows: what is computed of all of them is computed once.
    """

    def __init__(self, kept: KeptOrder, groups: np.ndarray) -> None:
        """The partitions whose group rows are at these addresses."""
        self.kept, self.groups, self._table, self._turn = kept, groups, kept.source.store.table, RLock()
        self.ordered = OrderedRows(self._table)
        width = self._table.keys + self._table.values * self._table.limbs
        sizes, self._words, self.has_copies = self.ordered.words(groups, width)
        self.steps, starts = self.ordered.steps, np.append(0, np.cumsum(sizes))
        if self.has_copies:
            counts = self._words[self._table.keys]
            self._words = [np.repeat(one, counts) for one in self._words]
            starts = np.append(0, np.cumsum(counts))[starts]
        self.partitions = Spans(starts)
        self.rows = self.partitions.rows

    @cached_property
    def addresses(self) -> np.ndarray:
        """The addresses of the rows in the store."""
        _, addresses = self.ordered.members(self.groups)
        if not self.has_copies:
            return addresses
        [counts] = self.ordered.gather(addresses, [self._table.keys])
        return np.repeat(addresses, counts)

    @cached_property
    def copy_numbers(self) -> np.ndarray:
        """Which copy of its row each is, from 0."""
        if not self.has_copies:
            return np.zeros(self.rows, np.int64)
        places = np.arange(self.rows)
        changed = np.append(True, self.addresses[1:] != self.addresses[:-1])[: self.rows]
        return places - np.maximum.accumulate(np.where(changed, places, 0))

    def peers(self, items: int) -> Spans:
        """The groups of peers: the rows of a partition that tie in the first `items` of the order."""
        with self._turn:
            if items not in self._peers:
                words = [self._words[place] for place in self.kept.item_places(items)]
                self._peers[items] = self.partitions.parted(words)
            return self._peers[items]

    def located(self, places: Places) -> PlacedRows:
        """The rows at these places."""
        return PlacedRows(self, places)

    def places_of(self, addresses: np.ndarray, copies: np.ndarray) -> np.ndarray:
        """The places of copies of rows at some addresses."""
        order = np.argsort(self.addresses, kind="stable")
        return order[np.searchsorted(self.addresses, addresses, sorter=order) + copies]

    def words(self, place: int) -> np.ndarray:
        """A key word of all rows."""
        return self._words[place]

    def running_sums(self, value: int) -> np.ndarray | None:
        """The sums of a value over all rows before each place, shape (rows + 1, limbs). None where it is always 1, as
        what counts the values of a column without NULLs: they are the places."""
        with self._turn:
            if value not in self._sums:
                limbs, first = self._table.limbs, self._table.keys + value * self._table.limbs
                words = self._each(self._words[first : first + limbs])
                is_one = limbs == 1 and words[0].min(initial=1) == 1 == words[0].max(initial=1)
                self._sums[value] = None if is_one else _running(words)
            return self._sums[value]

    def extremes(self, variable: str, codec: Codec, value: WindowValue) -> list[np.ndarray]:
        """The same as `LocatedRows.extremes` for all rows. O(rows), once."""
        key = variable, value
        with self._turn:
            if key not in self._extremes:
                rows, places = self.located(slice(0, self.rows)), self.kept.places((variable,))
                start, end = frame_bounds(value, rows)
                present = (self._words[places[0]] != at.NULL_CODE).astype(np.int64)
                order = order_list(order_places(codec, places[0]), descending=value.function == "max")
                found = frame_firsts(order, self.addresses, present, start, end)
                self._extremes[key] = rows.words(places, found)
            return self._extremes[key]

    @cached_property
    def _peers(self) -> dict[int, Spans]:
        return {}

    @cached_property
    def _extremes(self) -> dict[tuple[str, WindowValue], list[np.ndarray]]:
        return {}

    @cached_property
    def _sums(self) -> dict[int, np.ndarray | None]:
        return {}

    def _each(self, words: list[np.ndarray]) -> list[np.ndarray]:
        """The values of single copies: a row has the sum of its copies."""
        if not self.has_copies:
            return words
        counts = self._words[self._table.keys]
        if len(words) == 1:
            return [words[0] // counts]
        values = zip(to_integers(np.column_stack(words)), counts.tolist(), strict=True)
        return list(from_integers([value // count for value, count in values], len(words)).T)


class PlacedRows:
    """Rows at some places of whole partitions, which are their positions; see `LocatedRows`."""

    def __init__(self, whole: WholePartitions, places: Places) -> None:
        self._whole, self._places = whole, places
        self.first, self.behind = whole.partitions.around(places)
        self._peers: dict[int, Bounds] = {}

    @cached_property
    def position(self) -> np.ndarray:
        places = self._places
        return np.arange(places.start, places.stop) if isinstance(places, slice) else places

    def peers(self, items: int) -> Bounds:
        if items not in self._peers:
            self._peers[items] = self._whole.peers(items).around(self._places)
        return self._peers[items]

    def dense_ranks(self, items: int) -> np.ndarray:
        peers = self._whole.peers(items)
        return peers.numbers_of(self.position) - peers.numbers_of(self.first)

    def group_edge(self, items: int, groups: int, behind: bool) -> np.ndarray:
        peers = self._whole.peers(items)
        wanted = np.clip(peers.numbers_of(self.position) + groups + behind, 0, len(peers.starts) - 1)
        return np.clip(peers.starts[wanted], self.first, self.behind)

    def range_edge(self, distance: int, behind: bool) -> np.ndarray:
        whole, [place] = self._whole, self._whole.kept.item_places(1)
        codes, groups = whole.words(place)[self._places], whole.groups[whole.partitions.numbers_of(self.first)]
        edge = range_edge(whole.kept, whole.ordered, groups, codes, distance, behind)
        return np.where(codes == at.NULL_CODE, self.peers(1)[int(behind)], self.first + edge)

    def moved(self, distance: int) -> np.ndarray:
        return moved_within(self._places, distance, self.first, self.behind)

    def words(self, places: Sequence[int], positions: np.ndarray) -> list[np.ndarray]:
        return [
            words_within(self._whole.words(place), positions, self.first, self.behind, at.NULL_CODE if n == 0 else 0)
            for n, place in enumerate(places)
        ]

    def sums(self, value: int, frame: Bounds) -> np.ndarray:
        running = self._whole.running_sums(value)
        return (frame[1] - frame[0]).reshape(-1, 1) if running is None else sums_between(running, *frame)

    def extremes(self, variable: str, codec: Codec, value: WindowValue) -> list[np.ndarray]:
        return [words[self._places] for words in self._whole.extremes(variable, codec, value)]


def _running(words: list[np.ndarray]) -> np.ndarray:
    """Running sums of numbers given by their limbs, from 0 on, with a limb more where they may need it."""
    sums = running_sums(words[0]) if len(words) == 1 else None
    if sums is not None:
        return sums
    found, carry = [], np.zeros(len(words[0]), np.uint64)
    for word in (*words, words[-1] >> 63):
        digit = np.ascontiguousarray(word).view(np.uint64) + carry
        over = digit < carry
        total = np.cumsum(digit)
        carry = over.astype(np.uint64) + (total < digit)
        found.append(np.concatenate([[0], total.view(np.int64)]))
    return np.column_stack(found)

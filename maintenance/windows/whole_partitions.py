"""Whole partitions of an order as arrays: for reads that go through all rows of a partition. O(rows), once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

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

Places = np.ndarray | slice
"""Places of rows; a slice has both of its ends."""


class WholePartitions:
    """The rows of some partitions, each copy apart, partition after partition, in their order.

    `addresses` are those of the rows in the store, `partition` the number of each row's partition among these, `starts`
    has the place of each partition's first row and, last, the number of rows.
    """

    def __init__(self, kept: KeptOrder, groups: np.ndarray) -> None:
        """The partitions whose group rows are at these addresses."""
        self.kept, self.groups, self._table = kept, groups, kept.source.store.table
        self.rows = rows = OrderedRows(self._table)
        sizes, addresses = rows.members(groups)
        self.steps = rows.steps
        words = rows.gather(addresses, range(self._table.keys + self._table.values * self._table.limbs))
        partition, counts = np.repeat(np.arange(len(groups)), sizes), words[self._table.keys]
        self.has_copies = bool((counts != 1).any())
        if self.has_copies:
            addresses, partition, words = (np.repeat(one, counts, axis=-1) for one in (addresses, partition, words))
        self.addresses, self.partition, self._words = addresses, partition, words
        self.starts = np.searchsorted(partition, np.arange(len(groups) + 1))

    @cached_property
    def copy_numbers(self) -> np.ndarray:
        """Which copy of its row each is, from 0."""
        if not self.has_copies:
            return np.zeros(len(self.addresses), np.int64)
        places = np.arange(len(self.addresses))
        changed = np.append(True, self.addresses[1:] != self.addresses[:-1])[: len(places)]
        return places - np.maximum.accumulate(np.where(changed, places, 0))

    def peer_starts(self, items: int) -> np.ndarray:
        """The place of the first row of each group of peers, and, last, the number of rows."""
        if items not in self._peers:
            changed = np.append(True, self.partition[1:] != self.partition[:-1])[: len(self.partition)]
            for place in self.kept.item_places(items):
                changed[1:] |= self._words[place, 1:] != self._words[place, :-1]
            starts = np.append(np.flatnonzero(changed), len(self.addresses))
            self._peers[items] = starts, np.cumsum(changed) - 1
        return self._peers[items][0]

    def peer_numbers(self, items: int) -> np.ndarray:
        """The number of each row's group of peers among all."""
        self.peer_starts(items)
        return self._peers[items][1]

    def located(self, places: Places) -> PlacedRows:
        """The rows at these places."""
        return PlacedRows(self, places)

    def places_of(self, addresses: np.ndarray, copies: np.ndarray) -> np.ndarray:
        """The places of copies of rows at some addresses."""
        order = np.argsort(self.addresses, kind="stable")
        return order[np.searchsorted(self.addresses, addresses, sorter=order) + copies]

    def words(self, places: Sequence[int], rows: Places) -> list[np.ndarray]:
        """Key words of the rows at places; the code of NULL for place -1."""
        if isinstance(rows, slice):
            return [self._words[place, rows] for place in places]
        absent, found = rows < 0, [self._words[place].take(rows, mode="clip") for place in places]
        if absent.any():
            found = [np.where(absent, at.NULL_CODE if n == 0 else 0, word) for n, word in enumerate(found)]
        return found

    def running_sums(self, value: int) -> np.ndarray:
        """The sums of a value over all rows before each place, shape (rows + 1, limbs)."""
        if value not in self._sums:
            limbs, first = self._table.limbs, self._table.keys + value * self._table.limbs
            self._sums[value] = _running(self._each(self._words[first : first + limbs]))
        return self._sums[value]

    def extremes(self, variable: str, codec: Codec, value: WindowValue) -> list[np.ndarray]:
        """The same as `LocatedRows.extremes` for all rows. O(rows), once."""
        key = variable, value
        if key not in self._extremes:
            first, places = self.starts[self.partition], self.kept.places((variable,))
            start, end = (first + bound for bound in frame_bounds(value, self.located(slice(0, len(first)))))
            present = (self._words[places[0]] != at.NULL_CODE).astype(np.int64)
            order = order_list(order_places(codec, places[0]), descending=value.function == "max")
            self._extremes[key] = self.words(places, frame_firsts(order, self.addresses, present, start, end))
        return self._extremes[key]

    @cached_property
    def _peers(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        return {}

    @cached_property
    def _extremes(self) -> dict[tuple[str, WindowValue], list[np.ndarray]]:
        return {}

    @cached_property
    def _sums(self) -> dict[int, np.ndarray]:
        return {}

    def _each(self, words: np.ndarray) -> np.ndarray:
        """The values of single copies: a row has the sum of its copies."""
        if not self.has_copies:
            return words
        counts = self._words[self._table.keys]
        if len(words) == 1:
            return words // counts
        values = zip(to_integers(words.T), counts.tolist(), strict=True)
        return from_integers([value // count for value, count in values], len(words)).T


class PlacedRows:
    """Rows at some places of whole partitions; see `LocatedRows`."""

    def __init__(self, whole: WholePartitions, places: Places) -> None:
        self._whole, self._places, partition = whole, places, whole.partition[places]
        self._start, self._end = whole.starts[partition], whole.starts[partition + 1]
        numbers = np.arange(places.start, places.stop) if isinstance(places, slice) else places
        self.position = numbers - self._start
        self.size = self._end - self._start

    def peers(self, items: int) -> Bounds:
        starts, number = self._whole.peer_starts(items), self._whole.peer_numbers(items)[self._places]
        return starts[number] - self._start, starts[number + 1] - self._start

    def dense_ranks(self, items: int) -> np.ndarray:
        numbers = self._whole.peer_numbers(items)
        return numbers[self._places] - numbers[self._start]

    def group_edge(self, items: int, groups: int, behind: bool) -> np.ndarray:
        starts = self._whole.peer_starts(items)
        wanted = np.clip(self._whole.peer_numbers(items)[self._places] + groups + behind, 0, len(starts) - 1)
        return np.clip(starts[wanted], self._start, self._end) - self._start

    def range_edge(self, distance: int, behind: bool) -> np.ndarray:
        whole = self._whole
        [codes] = whole.words(whole.kept.item_places(1), self._places)
        groups = whole.groups[whole.partition[self._places]]
        edge = range_edge(whole.kept, whole.rows, groups, codes, distance, behind)
        return np.where(codes == at.NULL_CODE, self.peers(1)[int(behind)], edge)

    def words(self, places: Sequence[int], positions: np.ndarray) -> list[np.ndarray]:
        inside = (positions >= 0) & (positions < self.size)
        return self._whole.words(places, np.where(inside, self._start + positions, -1))

    def sums(self, value: int, frame: Bounds) -> np.ndarray:
        running, start, end = self._whole.running_sums(value), self._start + frame[0], self._start + frame[1]
        if running.shape[1] == 1:
            sums = running[:, 0]
            return (sums.take(end) - sums.take(start)).reshape(-1, 1)
        return _difference(running[end], running[start])

    def extremes(self, variable: str, codec: Codec, value: WindowValue) -> list[np.ndarray]:
        return [words[self._places] for words in self._whole.extremes(variable, codec, value)]


def _running(words: np.ndarray) -> np.ndarray:
    """Running sums of numbers given by their limbs, from 0 on, with a limb more where they may need it."""
    rows = words.shape[1]
    if len(words) == 1 and rows * max(1, int(np.abs(words[0]).max(initial=0))) < 2**62:
        sums = np.zeros((rows + 1, 1), np.int64)
        np.cumsum(words[0], out=sums[1:, 0])
        return sums
    found, carry = [], np.zeros(rows, np.uint64)
    for word in (*words, words[-1] >> 63):
        digit = np.ascontiguousarray(word).view(np.uint64) + carry
        over = digit < carry
        total = np.cumsum(digit)
        carry = over.astype(np.uint64) + (total < digit)
        found.append(np.concatenate([[0], total.view(np.int64)]))
    return np.column_stack(found)


def _difference(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """One number less another, limb by limb, modulo their width."""
    found, borrow = [], np.zeros(len(left), np.uint64)
    for number in range(left.shape[1]):
        a, b = (np.ascontiguousarray(one[:, number]).view(np.uint64) for one in (left, right))
        digit = a - b
        found.append((digit - borrow).view(np.int64))
        borrow = ((a < b) | (digit < borrow)).astype(np.uint64)
    return np.column_stack(found)

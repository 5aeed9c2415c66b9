"""Rows whose place in an order their keys do not tell at once: they are held back until none before them can follow.

A ranked tree has the rows in the order of their keys. Of a sum that is NULL, or rounded, these tell less than what it
is compared by: rows whose sum is NULL compare by what comes behind it, and of a rounded sum the key has a bound. But
each key tells what no later row comes before. So rows wait in a window, sorted by what they are, until they are before
that (the threshold at which Fagin, Lotem and Naor 2003 stop).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sqlfront.maintenance.ranked.index import SUM_WORDS, KeyLayout, RankedNode
from sqlfront.maintenance.ranked.rounded import bound_code, rounded_sums
from sqlfront.maintenance.ranked.tree_cursor import Block, Cursor, CursorOver, TreeCursor
from sqlfront.planner.model.query import Order
from sqlfront.storage.codecs.fixed import float_codes
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.tables import row_order
from sqlfront.storage.kernels.tables.ordered_group import sort_addresses
from sqlfront.storage.stores.row_addresses import address_of

_compare_rows = entry_point(row_order.compare_rows)
_FEW = 8
_LOW = 2**64 - 1


class Window(CursorOver):
    """The rows of a cursor as they are compared, of those that it, or `fetch`, gives in the order of their keys.
    `words` reads the words of a variable for rows of addresses.

    What is held are the rows between the first one and the last whose bound is not behind it: a few where sums are as
    far apart as they are rounded, and all rows that tie, or nearly so, but for rounding.
    """

    def __init__(
        self,
        order: Order,
        layout: KeyLayout,
        root: RankedNode,
        words: Callable[[np.ndarray, str], np.ndarray],
        cursor: Cursor,
        fetch: Callable[[int], Block] | None = None,
    ) -> None:
        super().__init__(cursor)
        self._layout, self._root, self._words = layout, root, words
        self._fetch = fetch or cursor.fetch
        terms = zip(layout.starts, order.terms, strict=True)
        self._rounded = {start: term for start, term in terms if term.form == "rounded"}
        self._prefixes: dict[int, np.ndarray] = {}
        self.restart()

    def restart(self) -> None:
        """Forget the rows held: those fetched from now on are another group's."""
        self._held: Block = np.empty((0, 0), np.int64), np.empty((0, 0), np.int64)
        self._ready = 0
        self._ended = False

    def fetch(self, capacity: int) -> Block:
        """The next rows, some unless there are no more, up to `capacity`. A key has of a rounded sum (NULLs, its code,
        0)."""
        wanted = capacity
        while not self._ready and not self._ended:
            self._extend(wanted)
            wanted = max(_FEW, len(self._held[0]))
        count = min(capacity, self._ready)
        addresses, keys = self._held
        self._held = addresses[count:], keys[count:]
        self._ready -= count
        return np.ascontiguousarray(addresses[:count]), keys[:count]

    def _extend(self, count: int) -> None:
        """Fetch so many rows more, and find which rows are ready."""
        addresses, keys = self._fetch(count)
        if not len(addresses):
            self._ended, self._ready = True, len(self._held[0])
            return
        told = not self._rounded and not any(keys[:, place].any() for place in self._layout.sums)
        if told and not len(self._held[0]):
            self._held, self._ready = (addresses, keys), len(addresses)
            return
        last, place = self._bound(keys[-1])
        keys = self._compared(addresses, keys)
        if len(self._held[0]):
            addresses, keys = np.concatenate([self._held[0], addresses]), np.concatenate([self._held[1], keys])
        places = sorted_places(self._root, keys)
        self._held = addresses[places], np.ascontiguousarray(keys[places])
        self._ready = self._count_ready(last, place)

    def _compared(self, addresses: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The keys by which rows are compared."""
        keys = np.array(keys)
        for place, term in self._rounded.items():
            values, _ = rounded_sums(term, lambda variable: self._words(addresses, variable))
            keys[:, place + 1], keys[:, place + 2] = float_codes(values), 0
        for place in self._layout.sums:
            keys[keys[:, place] > 0, place : place + SUM_WORDS] = (1, 0, 0)
        return keys

    def _bound(self, key: np.ndarray) -> tuple[np.ndarray, int]:
        """What no row behind one of this key comes before: words to be compared up to a place. If these are all, then
        such rows may be equal; else they may be so up to there, in any order."""
        bound = np.array(key)
        for place in self._layout.sums:
            if key[place] > 0:
                bound[place : place + SUM_WORDS] = (1, 0, 0)
                return bound, place + SUM_WORDS
            term = self._rounded.get(place)
            if term is None:
                continue
            code, is_exact = bound_code(term, (int(key[place + 1]) << 64) + (int(key[place + 2]) & _LOW))
            bound[place : place + SUM_WORDS] = (0, code, 0)
            if not is_exact:
                return bound, place + SUM_WORDS
        return bound, len(bound) + 1

    def _count_ready(self, bound: np.ndarray, place: int) -> int:
        """How many of the rows held come before a bound."""
        keys, order = self._held[1], address_of(self._prefix(min(place, len(bound))))
        start, step, last = address_of(keys), keys.strides[0], address_of(bound)
        below = 1 if place > len(bound) else 0
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if _compare_rows(order, start + middle * step, last) < below:
                low = middle + 1
            else:
                high = middle
        return low

    def _prefix(self, place: int) -> np.ndarray:
        """The order list of the words up to a place."""
        if place not in self._prefixes:
            entries = self._layout.entries[:place]
            words = [0, len(entries), *(word for entry in entries for word in entry)]
            self._prefixes[place] = np.array(words, np.int64)
        return self._prefixes[place]


class GroupedWindow(CursorOver):
    """The first `quota` rows of each of a root's groups, as they are compared (0: all rows), one group after the other.

    The cursor gives the rows of all groups, `anchors` the words by which they are apart. The rest is as in `Window`.
    """

    def __init__(
        self,
        window: Callable[[Cursor, Callable[[int], Block]], Window],
        cursor: TreeCursor,
        anchors: Callable[[np.ndarray], np.ndarray],
        quota: int,
    ) -> None:
        super().__init__(cursor)
        self._window, self._anchors = window(cursor, self._fetch_own), anchors
        self._fetch, self._skip = cursor.fetch, cursor.skip_group
        self._quota = quota or np.iinfo(np.int64).max
        self._beyond: Block = np.empty((0, 0), np.int64), np.empty((0, 0), np.int64)
        self._anchor = np.empty((0, 0), np.int64)
        self._left = 0

    def fetch(self, capacity: int) -> Block:
        """The next rows of one group, some unless there are no more, up to `capacity`."""
        while True:
            if not self._left and not self._begin():
                return self._beyond
            block = self._window.fetch(min(capacity, self._left))
            if len(block[0]):
                self._left -= len(block[0])
                return block
            self._left = 0

    def _begin(self) -> bool:
        """Begin with the next group; whether there is one."""
        if not len(self._beyond[0]):
            self._skip()
            self._beyond = self._fetch(_FEW)
        self._anchor = self._anchors(self._beyond[0][:1])
        self._left = self._quota if len(self._beyond[0]) else 0
        self._window.restart()
        return self._left > 0

    def _fetch_own(self, count: int) -> Block:
        """More rows of the present group; none at its end."""
        block = self._beyond if len(self._beyond[0]) else self._fetch(max(count, _FEW))
        addresses, keys = block
        own = (self._anchors(addresses) == self._anchor).all(axis=1)
        size = len(own) if own.all() else int(own.argmin())
        self._beyond = addresses[size:], keys[size:]
        return addresses[:size], keys[:size]


def sorted_places(root: RankedNode, keys: np.ndarray) -> np.ndarray:
    """In which order rows of keys come in the groups of a tree's root."""
    assert root.table is not None
    places = address_of(keys) + np.arange(len(keys)) * keys.strides[0]
    sort_addresses(root.table.order_address, address_of(places), len(keys))
    return (places - address_of(keys)) // keys.strides[0]

"""Several orders read as one: a merge of cursors by the keys of their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlfront.maintenance.ranked.index import RankedNode
from sqlfront.maintenance.ranked.tree_cursor import Block, Cursor
from sqlfront.maintenance.ranked.window import sorted_places

_FIRST, _WHOLE = 4, 4096


class MergedCursor:
    """The rows of several cursors by their keys, equal ones once if they are to be `distinct`: what has been fetched of
    all is merged as far as the cursor that has shown least goes, which is then asked for more, twice as many each time.

    A cursor that gives fewer rows than it is asked for is at its end. `order` has a table in whose order keys compare,
    `nodes` is the number of addresses that each row has.
    """

    def __init__(self, cursors: Sequence[Cursor], order: RankedNode, nodes: int, *, distinct: bool) -> None:
        assert order.table is not None
        self._cursors, self._order, self._distinct = cursors, order, distinct
        width = order.table.rank_words
        self._rest = np.empty((0, nodes), np.int64), np.empty((0, width), np.int64)
        self._last = np.empty((0, width), np.int64)
        self._origins = np.empty(0, np.int64)
        self._ended = np.zeros(len(cursors), bool)
        self._asked = np.full(len(cursors), _FIRST)
        self._ready = 0

    @property
    def steps(self) -> int:
        return sum(cursor.steps for cursor in self._cursors)

    @property
    def cells(self) -> int:
        return sum(cursor.cells for cursor in self._cursors)

    def fetch(self, capacity: int) -> Block:
        while not self._ready and not (self._ended.all() and not len(self._origins)):
            self._merge()
        count = min(capacity, self._ready)
        addresses, keys = self._rest
        self._rest, self._origins = (addresses[count:], keys[count:]), self._origins[count:]
        self._ready -= count
        return np.ascontiguousarray(addresses[:count]), np.ascontiguousarray(keys[:count])

    def _merge(self) -> None:
        """Ask the cursors without rows left. A row is ready if it comes before the last row of every cursor."""
        waiting = np.flatnonzero(~self._ended & (np.bincount(self._origins, minlength=len(self._cursors)) == 0))
        blocks = [self._rest]
        for number in waiting.tolist():
            block = self._cursors[number].fetch(int(self._asked[number]))
            self._ended[number] = len(block[1]) < self._asked[number]
            self._asked[number] = min(2 * self._asked[number], _WHOLE)
            blocks.append(block)
        origins = np.repeat(waiting, [len(keys) for _, keys in blocks[1:]])
        addresses, keys = (np.ascontiguousarray(np.concatenate(side)) for side in zip(*blocks, strict=True))
        order = sorted_places(self._order, keys)
        self._rest = addresses[order], keys[order]
        self._origins = np.concatenate([self._origins, origins])[order]
        last = [np.flatnonzero(self._origins == number)[-1] for number in np.flatnonzero(~self._ended)]
        self._ready = int(min(last)) + 1 if last else len(order)
        if self._distinct:
            self._pass_over_equal()

    def _pass_over_equal(self) -> None:
        """Leave out the rows that are equal to the one before them, which may have been fetched already."""
        addresses, keys = self._rest
        known = np.concatenate([self._last, keys])
        kept = np.ones(len(known), bool)
        kept[1:] = (known[1:] != known[:-1]).any(axis=1)
        kept = kept[len(self._last) :]
        if self._ready:
            self._last = keys[self._ready - 1 : self._ready]
        self._rest, self._origins = (addresses[kept], keys[kept]), self._origins[kept]
        self._ready = int(kept[: self._ready].sum())

"""The pairs of rows of two sorted tables, each row of the left with its nearest rows of the right.

Memory that a call takes for many rows goes back after it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import nearest_pairs as kernels
from sqlfront.storage.kernels.tables.upkeep import free_words
from sqlfront.storage.stores.row_addresses import address_of
from sqlfront.storage.stores.table import Table

_change_pairs = entry_point(kernels.change_pairs)
_copy_made = entry_point(kernels.copy_made)
_LISTS = range(at.PAIRS_MOVED, at.PAIRS_SIZE, at.LIST_WORDS)
_KEPT_WORDS = 1 << 16


class SortedRows(NamedTuple):
    """A table with an ordered index of this number, and the places of the words of its groups' keys."""

    table: Table
    number: int
    key: Sequence[int]


class PairTests(NamedTuple):
    """Tests of rows of the right by one of the left, and of the left and the own rows by one of the right, as words;
    None for no test. With `most` 0 the partner is the extreme row between the bounds, else the first `most` copies.

    `second` tests the column of the right's second summary, `beside` and `own_beside` that of the left's first. Own
    rows that pass `better` do not change with the row of the right."""

    lower: Sequence[int] | None
    upper: Sequence[int] | None
    reached: Sequence[int]
    own_reached: Sequence[int]
    most: int
    outer: bool
    second: Sequence[int] | None = None
    beside: Sequence[int] | None = None
    own_beside: Sequence[int] | None = None
    better: Sequence[int] | None = None


class NearestPairs:
    """The pairs over tables, which are those of now: each table has the layout that it had when this was made.

    `sources`: where the words of a changed row of the left, and of the right, lie in encoded rows, behind the width of
    these. `laid` are (own place, left place), `shown` (own place, right place, word of NULL).
    """

    def __init__(
        self,
        left: SortedRows,
        own: SortedRows,
        right: SortedRows,
        sources: tuple[tuple[int, Sequence[int]], tuple[int, Sequence[int]]],
        tests: PairTests,
        laid: Sequence[tuple[int, int]],
        shown: Sequence[tuple[int, int, int]],
    ) -> None:
        self._words, self._held = np.zeros(at.PAIRS_SIZE, np.int64), list[np.ndarray]()
        self._scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        self._width = own.table.keys + 1
        for place, side in ((at.PAIRS_LEFT, left), (at.PAIRS_OWN, own), (at.PAIRS_RIGHT, right)):
            words = self._hold([side.table.keys, *range(side.table.keys)])
            key = self._hold([len(side.key), *side.key])
            group = side.table.groups[side.number].address
            self._words[place : place + 5] = side.table.address, group, side.number, words, key
        for place, (width, places) in zip((at.PAIRS_LEFT_SOURCE, at.PAIRS_RIGHT_SOURCE), sources, strict=True):
            self._words[place] = self._hold([width, len(places), *places])
        held = (tests.lower, tests.upper, tests.second, tests.reached, tests.own_reached)
        for place, test in enumerate((*held, tests.beside, tests.own_beside, tests.better), at.PAIRS_LOWER):
            self._words[place] = 0 if test is None else self._hold(test)
        self._words[at.PAIRS_MOST], self._words[at.PAIRS_OUTER] = tests.most, tests.outer
        self._words[at.PAIRS_LAID] = self._hold([len(laid), *(word for pair in laid for word in pair)])
        self._words[at.PAIRS_SHOWN] = self._hold([len(shown), *(word for one in shown for word in one)])
        self._words[at.PAIRS_ROW] = self._hold([0] * self._width)
        self._words[at.PAIRS_OWN_LEFT] = self._hold([len(laid), *(own for own, _ in sorted(laid, key=itemgetter(1)))])
        self._address, self._scratch_at = int(self._words.ctypes.data), int(self._scratch.ctypes.data)
        weakref.finalize(self, _free_lists, self._words, 0).atexit = False

    def change(self, left: tuple[int, int], right: tuple[int, int]) -> np.ndarray:
        """The rows by which the pairs change, each with its weight behind its words, netted, from the address and the
        number of encoded changes of both sides."""
        return self._made(_change_pairs(self._address, self._scratch_at, *left, *right))

    def all(self) -> np.ndarray:
        """The pairs of all rows of the left, with their counts. O(N log N)."""
        return self._made(kernels.all_pairs(self._address, self._scratch_at))

    def take_steps(self) -> int:
        """The steps since this was asked last."""
        steps = int(self._scratch[at.STEPS])
        self._scratch[at.STEPS] = 0
        return steps

    def _made(self, rows: int) -> np.ndarray:
        made = np.empty((rows, self._width), np.int64)
        if rows:
            _copy_made(self._address, address_of(made))
        if rows * self._width > _KEPT_WORDS:
            _free_lists(self._words, _KEPT_WORDS)
        return made

    def _hold(self, words: Sequence[int]) -> int:
        """The address of words that live as long as this."""
        self._held.append(np.array(words, np.int64))
        return int(self._held[-1].ctypes.data)


def _free_lists(words: np.ndarray, kept: int) -> None:
    """Give back the memory of lists that have more room than is kept."""
    for place in _LISTS:
        if words[place + at.LIST_ROOM] > kept:
            free_words(int(words[place + at.LIST_AT]))
            words[place : place + at.LIST_WORDS] = 0

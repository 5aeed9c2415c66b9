"""Comparisons of rows with bounds that move: which rows pass, and which lie between two values of a bound.

Rows and bounds are words, compared by kernels as ordered groups compare them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.ordered_store import OrderedStore
from sqlfront.maintenance.program.programs import WordTest
from sqlfront.planner.model.computed_rows import TimeBound
from sqlfront.storage.codecs.order import order_places
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import range_scan
from sqlfront.storage.kernels.tables.row_order import compare_rows
from sqlfront.storage.stores.row_addresses import find_rows, first_passing, gather_words, list_between

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Relation

_BEHIND = {"<": at.PASS_GREATER, ">": at.PASS_LESS, "=": 0}
"""Which rows pass, by how the bound compares with them."""
_ABOVE, _NOT_BELOW = at.PASS_LESS, at.PASS_LESS | at.PASS_EQUAL


class TimedRows(OrderedStore):
    """The rows of a relation in the order of a column, all in one group."""

    def __init__(self, relation: Relation, column: str, user: str) -> None:
        super().__init__(relation, (), [(column, 0)], user)
        self.codec, self._column = self.codec_of(column), column

    @property
    def time_place(self) -> int:
        """The place of the first word of a row's time."""
        return self.places_of(self._column)[0]

    def next(self, test: np.ndarray, bound: np.ndarray) -> np.ndarray | None:
        """What is compared of the first row that passes a test against a bound; None if no row does. O(log N)."""
        address = first_passing(self.store.table, self._group(), bound, test, self._scratch)
        if address == 0:
            return None
        return gather_words(np.array([address]), range(self.time_place, self.time_place + self.codec.words))[:, 0]

    def between(self, test: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The words of the rows that pass a test against one bound and fail it against another, row after row, and how
        often each is there. O(log N), and a step for each."""
        addresses = list_between(self.store.table, self._group(), low, high, test, self._scratch)
        words, there = self.rows_at(addresses)
        return words.T, there

    def take_steps(self) -> int:
        """The steps of reads since this was asked last."""
        steps = int(self._scratch[at.STEPS])
        self._scratch[at.STEPS] = 0
        return steps

    def _group(self) -> int:
        """The address of the row of the only group, 0 without rows."""
        return int(find_rows(self.store.table.groups[0], np.zeros((1, 0), np.int64), self._scratch)[0])


class Compared:
    """Rows of words, row after row, and which of them have passed all tests so far: none that has NULL at `places`."""

    def __init__(self, words: np.ndarray, places: frozenset[int] = frozenset()) -> None:
        self._words = np.ascontiguousarray(words)
        self._addresses = self._words.ctypes.data + self._words.strides[0] * np.arange(len(words))
        self._keep = np.ones(len(words), np.int64)
        for place in places:
            self._keep &= self._words[:, place] != at.NULL_CODE

    @property
    def kept(self) -> np.ndarray:
        return self._keep.astype(bool)

    def keep(self, test: np.ndarray, bound: np.ndarray) -> None:
        """Pass the rows over that fail a test against a bound."""
        addresses, keep = self._addresses.ctypes.data, self._keep.ctypes.data
        range_scan.keep_within(test.ctypes.data, bound.ctypes.data, addresses, len(self._keep), keep)


class TestedBound:
    """A bound as kernels test it: against rows in the order of its column."""

    def __init__(self, bound: TimeBound, rows: TimedRows) -> None:
        self.bound, self.rows = bound, rows
        equal = at.PASS_EQUAL if "=" in bound.operator else 0
        self.test = self._test(_BEHIND[bound.operator[0]] | equal)
        # Rows equal to the bound pass <= and >=. They lie in the range of > and <= that ends with them, and in that of
        # < and >= that begins with them.
        self._tests = [
            (self._test(passing), outcome)
            for operators, passing, outcome in (((">", "<=", "="), _ABOVE, 0), (("<", ">=", "="), _NOT_BELOW, 1))
            if bound.operator in operators
        ]

    def encoded(self, values: pa.Array) -> np.ndarray:
        """The words of values of the bound, row after row."""
        return np.ascontiguousarray(np.column_stack(self.rows.codec.encode(values)))

    def lies_between(self, words: np.ndarray, start: np.ndarray, end: np.ndarray | None) -> np.ndarray:
        """Which rows lie between two values of the bound, both included; without an end all from the start on."""
        found = Compared(words)
        found.keep(self._test(_NOT_BELOW), start)
        if end is not None:
            found.keep(self._test(at.PASS_GREATER | at.PASS_EQUAL), end)
        return found.kept

    def following(self, value: np.ndarray) -> list[tuple[np.ndarray, int]]:
        """The next rows that come or go as the bound grows from a value on: what is compared of each, and how the bound
        then compares with it at least, 0 if it has come to the row and 1 if it has passed the row."""
        found = ((self.rows.next(test, value), outcome) for test, outcome in self._tests)
        return [(row, outcome) for row, outcome in found if row is not None]

    def compare(self, one: np.ndarray, other: np.ndarray) -> int:
        """-1, 0 or 1: the order of two values."""
        return int(compare_rows(self.test.ctypes.data + 3 * 8, one.ctypes.data, other.ctypes.data))

    def moved(self, old: np.ndarray, new: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The rows between two values of the bound, among them all that pass one of them only, and how often each is
        there."""
        outcome = self.compare(old, new)
        low, high = (old, new) if outcome < 0 else (new, old)
        for test, _ in self._tests if outcome else ():
            yield self.rows.between(test, low, high)

    def _test(self, passing: int) -> np.ndarray:
        """A test of rows against the bound: which outcomes pass of comparing the bound with a row."""
        places = order_places(self.rows.codec, 0)
        return np.array(WordTest(passing, 0, self.rows.time_place, places).words(), np.int64)

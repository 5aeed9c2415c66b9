"""Spans of the rows of whole groups, and sums over them, as arrays. Places count rows from 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlfront.storage.kernels.tables import whole_groups as kernels
from sqlfront.storage.stores.row_addresses import address_of

Places = np.ndarray | slice
"""Places of rows; a slice has both of its ends."""


class Spans:
    """Runs of neighbouring rows: `starts` has the place of each one's first row and, last, the number of rows."""

    def __init__(self, starts: np.ndarray) -> None:
        self.starts = starts

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def parted(self, words: Sequence[np.ndarray]) -> Spans:
        """The spans within these whose rows have the same words. O(rows)."""
        found, addresses = np.empty(self.rows + 1, np.int64), np.array([address_of(one) for one in words], np.int64)
        made = kernels.new_spans(
            address_of(addresses), len(words), self.rows, address_of(self.starts), len(self.starts) - 1,
            address_of(found),
        )  # fmt: skip
        return Spans(found[: made + 1])

    def numbers_of(self, places: np.ndarray) -> np.ndarray:
        """The numbers of the spans of rows. O(log spans) each."""
        return np.searchsorted(self.starts, places, side="right") - 1

    def around(self, places: Places) -> tuple[np.ndarray, np.ndarray]:
        """Where each row's span starts, and where it ends. O(1) a row of a slice, else O(log spans)."""
        if not isinstance(places, slice):
            numbers = self.numbers_of(places)
            return self.starts[numbers], self.starts[numbers + 1]
        rows = places.stop - places.start
        found, first = np.empty((2, rows), np.int64), int(self.numbers_of(np.array(places.start)))
        kernels.spans_around(address_of(self.starts), first, places.start, rows, address_of(found))
        return found[0], found[1]


def moved_within(places: Places, distance: int, firsts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The places that are so far behind some, not before each one's first nor behind its end."""
    if not isinstance(places, slice):
        return np.clip(places + distance, firsts, ends)
    found = np.empty(len(firsts), np.int64)
    kernels.moved_within(places.start + distance, address_of(firsts), address_of(ends), len(firsts), address_of(found))
    return found


def running_sums(numbers: np.ndarray) -> np.ndarray | None:
    """The sums of numbers before each place, shape (rows + 1, 1); None if the difference of two may be beyond a
    word."""
    numbers = np.ascontiguousarray(numbers)
    found = np.empty((len(numbers) + 1, 1), np.int64)
    return None if kernels.running_sums(address_of(numbers), len(numbers), address_of(found)) else found


def sums_between(running: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """What running sums, shape (rows + 1, limbs), grow by from each first place to a last one."""
    firsts, lasts = np.ascontiguousarray(firsts), np.ascontiguousarray(lasts)
    found = np.empty((len(firsts), running.shape[1]), np.int64)
    kernels.sums_between(
        address_of(running), running.shape[1], address_of(firsts), address_of(lasts), len(firsts), address_of(found)
    )
    return found


def words_within(
    words: np.ndarray, places: np.ndarray, firsts: np.ndarray, ends: np.ndarray, absent: int
) -> np.ndarray:
    """The word at each place, `absent` where that is before its first or not before its end."""
    places, found = np.ascontiguousarray(places), np.empty(len(places), np.int64)
    kernels.words_within(
        address_of(words), address_of(places), address_of(firsts), address_of(ends), len(places), absent,
        address_of(found),
    )  # fmt: skip
    return found

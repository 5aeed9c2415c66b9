"""Spans of the rows of whole groups, and sums over them, as arrays. Places and positions count from 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlfront.storage.kernels.tables import whole_groups as kernels
from sqlfront.storage.stores.row_addresses import address_of


class Spans:
    """Runs of neighbouring rows, of which there are `rows`: `starts` has the place of each one's first row and, last,
    the number of rows."""

    def __init__(self, starts: np.ndarray) -> None:
        self.starts = starts

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def parted(self, words: np.ndarray, places: Sequence[int]) -> Spans:
        """The spans within these whose rows have the same words at some places, of words of shape (places, rows)."""
        found, compared = np.empty(self.rows + 1, np.int64), np.array(places, np.int64)
        made = kernels.new_spans(
            address_of(words), self.rows, address_of(compared), len(compared), address_of(self.starts),
            len(self.starts) - 1, address_of(found),
        )  # fmt: skip
        return Spans(found[: made + 1])

    def numbers_of(self, places: np.ndarray) -> np.ndarray:
        """The numbers of the spans that have rows at places."""
        return np.searchsorted(self.starts, places, side="right") - 1

    def places(self, first: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For `rows` rows from place `first` on: where each row's span starts, the row's position in it, its size."""
        found = np.empty((3, rows), np.int64)
        kernels.places_in_spans(address_of(self.starts), self._at(first), first, rows, address_of(found))
        return found[0], found[1], found[2]

    def around(self, first: int, bases: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For as many rows from `first` on as there are `bases`: where each row's span starts, and where it ends, less
        its base; and its number."""
        found = np.empty((3, len(bases)), np.int64)
        kernels.spans_around(
            address_of(self.starts), self._at(first), first, len(bases), address_of(bases), address_of(found)
        )
        return found[0], found[1], found[2]

    def _at(self, place: int) -> int:
        return int(np.searchsorted(self.starts, place, side="right")) - 1


def running_sums(numbers: np.ndarray) -> np.ndarray | None:
    """The sums of numbers before each place, shape (rows + 1, 1); None if the difference of two may be beyond a
    word."""
    numbers = np.ascontiguousarray(numbers)
    found = np.empty((len(numbers) + 1, 1), np.int64)
    return None if kernels.running_sums(address_of(numbers), len(numbers), address_of(found)) else found


def sums_between(running: np.ndarray, bases: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """What running sums, shape (rows + 1, limbs), grow by from position firsts[i] to lasts[i] behind each base."""
    running, bases = np.ascontiguousarray(running), np.ascontiguousarray(bases)
    firsts, lasts = np.ascontiguousarray(firsts), np.ascontiguousarray(lasts)
    found = np.empty((len(bases), running.shape[1]), np.int64)
    kernels.sums_between(
        address_of(running), running.shape[1], address_of(bases), address_of(firsts), address_of(lasts), len(bases),
        address_of(found),
    )  # fmt: skip
    return found


def words_within(
    words: np.ndarray, bases: np.ndarray, sizes: np.ndarray, positions: np.ndarray, absent: int
) -> np.ndarray:
    """The word at each position behind a base, `absent` where the position is outside of a size."""
    words, bases = np.ascontiguousarray(words), np.ascontiguousarray(bases)
    sizes, positions = np.ascontiguousarray(sizes), np.ascontiguousarray(positions)
    found = np.empty(len(bases), np.int64)
    kernels.words_within(
        address_of(words), address_of(bases), address_of(sizes), address_of(positions), len(bases), absent,
        address_of(found),
    )  # fmt: skip
    return found

"""Where rows stand in their partitions: what window functions ask of an order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from sqlfront.planner.model.window_functions import WindowValue
from sqlfront.storage.codecs.codec import Codec

Bounds = tuple[np.ndarray, np.ndarray]


class LocatedRows(Protocol):
    """Some rows, each copy apart, in an order. Positions count rows, copies apart.

    `position` is that of each row, `first` that of the first row of its partition, `behind` that behind the last one.
    Frames are pairs of positions: that of the first row, and that behind the last.
    """

    first: np.ndarray
    behind: np.ndarray

    @property
    def position(self) -> np.ndarray: ...

    def peers(self, items: int) -> Bounds:
        """The frame of each row's peers: the rows that tie in the first `items` of the order."""
        ...

    def dense_ranks(self, items: int) -> np.ndarray:
        """How many groups of peers come before each row."""
        ...

    def group_edge(self, items: int, groups: int, behind: bool) -> np.ndarray:
        """The position of the first row of the group so many `groups` of peers after each row's (before it, if
        negative), or that `behind` its last row; the partition's first or last edge where there is no such group."""
        ...

    def range_edge(self, distance: int, behind: bool) -> np.ndarray:
        """The position of the first row whose value of the order's first item is so far, in codes, behind that of each
        row, or the position `behind` the last such row. Rows of NULL have the edge of their peers."""
        ...

    def words(self, places: Sequence[int], positions: np.ndarray) -> list[np.ndarray]:
        """Key words of the row at a position in each row's partition; the code of NULL for a position outside."""
        ...

    def moved(self, distance: int) -> np.ndarray:
        """The positions so far behind the rows' own, up to the edges of their partitions."""
        ...

    def sums(self, value: int, frame: Bounds) -> np.ndarray:
        """The sum of a value over each row's frame, as limbs, shape (rows, limbs)."""
        ...

    def extremes(self, variable: str, codec: Codec, value: WindowValue) -> list[np.ndarray]:
        """The key words of the least or the greatest value of a variable in each row's frame, without NULLs; the code
        of NULL where there is none."""
        ...

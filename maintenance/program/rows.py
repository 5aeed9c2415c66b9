"""Rows of a view's core in batches: what every enumeration gives, and all that decodes rows reads."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from sqlfront.maintenance.program.shapes import Part
from sqlfront.storage.errors import DataError

FIRST_BATCH, BATCH = 256, 32768


class Rows(Protocol):
    """Some rows: the code words of their variables, and their partial sums, of shape (rows, limbs)."""

    def words(self, variable: str) -> list[np.ndarray]: ...

    def values(self, part: Part) -> np.ndarray: ...


class RowSource(Rows, Protocol):
    """An enumeration in progress, whose present batch are `rows` rows. Valid until the state changes."""

    @property
    def rows(self) -> int:
        """The rows of the present batch."""
        ...

    @property
    def steps(self) -> int:
        """Elementary steps taken so far."""
        ...

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance by up to `capacity` rows; the number of those now in the batch, 0 at the end. Without `gather` they
        are only counted."""
        ...

    def all_ones(self, part: Part) -> bool:
        """Whether a part's value is 1 for each row."""
        ...


def numbers(rows: Rows, part: Part) -> np.ndarray:
    """A part's values as int64. DataError if one is beyond that."""
    return whole_numbers(rows.values(part))


def whole_numbers(values: np.ndarray) -> np.ndarray:
    """Values of several limbs as int64. DataError if one is beyond that."""
    if values.shape[1] > 1 and (values[:, 1:] != values[:, :1] >> 63).any():
        raise DataError("a count is beyond BIGINT", hint="group by more columns, or filter")
    return np.ascontiguousarray(values[:, 0])

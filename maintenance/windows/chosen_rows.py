"""Some rows of a view in orders, chosen one by one: copies of rows by their key words."""

from __future__ import annotations

import numpy as np

from sqlfront.maintenance.windows.order_walk import CopiesApart
from sqlfront.maintenance.windows.window_stores import KeptOrder


class ChosenRows(CopiesApart):
    """Rows of a view by their key words, row after row; see `Rows`. `copies` has the number of each row's copy."""

    def __init__(self, kept: KeptOrder, keys: np.ndarray, copies: np.ndarray) -> None:
        super().__init__(None)
        self._kept, self._keys, self.copies, self.rows = kept, keys, copies, len(copies)

    @property
    def steps(self) -> int:
        """None: the rows have been found."""
        return 0

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable."""
        return [np.ascontiguousarray(self._keys[:, place]) for place in self._kept.places((variable,))]

"""The change of a view that is the first rows of an order: its rows before an epoch and after it, compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


class TopRows:
    """The rows that the readers of a view's changes know, and those that an epoch makes of them until it is committed.

    No rows are None: nothing tells their types.
    """

    def __init__(self, rows: pa.Table | None) -> None:
        self._known, self._made = rows, rows

    def make(self, rows: pa.Table | None) -> tuple[pa.Table, np.ndarray] | None:
        """The known rows and the new ones, with weights -1 and 1; None if there are none at all."""
        import pyarrow as pa

        self._made = rows
        sides = [(table, weight) for table, weight in ((self._known, -1), (rows, 1)) if table is not None]
        if not sides:
            return None
        weights = np.concatenate([np.full(table.num_rows, weight) for table, weight in sides])
        return pa.concat_tables([table for table, _ in sides]), weights

    def forget(self) -> None:
        """The epoch has been undone."""
        self._made = self._known

    def commit(self) -> None:
        """What has been made is what readers know now."""
        self._known = self._made

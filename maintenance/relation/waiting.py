"""Changes of a relation that wait for a copy of it (`maintenance/deferred.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.program.netting import net
from sqlfront.storage.codecs.arrow_batches import arrow_numbers

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.relation.encoded import Encoded

HELD_ROWS = 1_000_000
"""How many netted rows wait for one copy at most."""
SINGLE_ROW = 256
"""About what Python takes for a row of a few values, in bytes."""
_PART = 1024
"""About what Arrow takes for the rows of an epoch beside their values."""


class Waiting:
    """The changes of a relation that wait for a copy of it; `bytes` is their memory."""

    def __init__(self, copy: Relation) -> None:
        self.rows = self.bytes = 0
        self._copy, self._names = copy, [column.name for column in copy.columns]
        self._parts: list[tuple[Any, np.ndarray]] = []
        self._single: list[tuple[tuple[Any, ...], int]] = []

    def add(self, item: Encoded) -> int:
        """Keep the rows of an epoch; the bytes that they take. They are copied: who gave them may overwrite them.
        O(rows)."""

        rows, weights = rows_of(item, self._names)
        rows = rows.take(arrow_numbers(np.arange(len(weights))))
        return self._keep(rows, weights.copy())

    def add_row(self, row: Sequence[Any], weight: int) -> None:
        """Keep one row of Python values that can be encoded. O(1)."""
        self._single.append((tuple(row), weight))
        self.rows += 1
        self.bytes += SINGLE_ROW

    def is_too_long(self) -> bool:
        """Whether more rows wait than are held, also when they are netted. O(1), amortised over the rows."""
        if self.rows <= HELD_ROWS:
            return False
        self.net()
        return 2 * self.rows > HELD_ROWS

    def net(self) -> None:
        """Keep each row once. O(rows)."""
        if self.rows:
            rows, weights = self.netted()
            self.clear()
            if len(weights):
                self._keep(rows, weights)

    def join(self, later: Waiting) -> None:
        """Keep the changes of the same relation that came later, too."""
        self._parts += later._parts
        self._single += later._single
        self.rows += later.rows
        self.bytes += later.bytes

    def netted(self) -> tuple[pa.Table, np.ndarray]:
        """The rows with their weights, each once. O(rows)."""
        import pyarrow as pa

        parts = list(self._parts)
        if self._single:
            batch = self._copy.as_batch([row for row, _ in self._single])
            weights = np.array([weight for _, weight in self._single], np.int64)
            parts.append((pa.Table.from_batches([batch]), weights))
        # One epoch's text may be large_string, another's string.
        rows = pa.concat_tables([self._copy.as_declared(rows) for rows, _ in parts])
        positions, weights = net(rows.columns, np.concatenate([weights for _, weights in parts]))
        return rows.take(arrow_numbers(positions)), weights

    def clear(self) -> None:
        self.rows, self.bytes, self._parts, self._single = 0, 0, [], []

    def _keep(self, rows: pa.Table, weights: np.ndarray) -> int:
        taken = int(rows.nbytes + weights.nbytes) + _PART
        self._parts.append((rows, weights))
        self.rows += len(weights)
        self.bytes += taken
        return taken


def rows_of(item: Encoded, names: list[str]) -> tuple[pa.Table, np.ndarray]:
    """These columns of the rows that an epoch changes in a relation, and their weights."""
    import pyarrow as pa

    batch = item.batch
    assert batch is not None
    places = {name.casefold(): place for place, name in enumerate(batch.schema.names)}
    columns = [batch.column(places[name.casefold()]) for name in names]
    weights = item.weights
    if weights is None:
        own = places.get("_weight") if len(places) > len(item.relation.columns) else None
        weights = np.ones(batch.num_rows, np.int64) if own is None else batch.column(own).to_numpy()
    return pa.table(columns, names=names), weights

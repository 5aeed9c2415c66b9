"""The change of a view with window functions: the rows of the partitions that an epoch touches, before and after.

While somebody listens, the rows of each partition are kept as they were told last. The paths gather the changed tuples,
which name the touched partitions. An epoch costs O(rows of the touched partitions).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.output import raw_batch
from sqlfront.maintenance.output.output_change import OutputChange, netted, sql_rows
from sqlfront.maintenance.view.emission import OutputDelta
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.windows.order_walk import OrderWalk
from sqlfront.maintenance.windows.window_stores import KeptOrder

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Evaluate

Key = tuple[int, ...]


class PartitionChange:
    """The change that the paths gather from now on; see `ChangeReader`. `kept` is an order of the partitions."""

    def __init__(self, view: MaintainedView, kept: KeptOrder, evaluate: Evaluate) -> None:
        self._view, self._kept, self._evaluate = view, kept, evaluate
        view.delta = OutputDelta(view.tree, view.limbs)
        self._known = self._rows(None)
        self._made: dict[Key, list[pa.Table]] = {}

    def rows(self) -> tuple[pa.Table, np.ndarray]:
        import pyarrow as pa

        tables, weights = list[pa.Table](), [np.empty(0, np.int64)]
        for key in self._touched():
            self._made[key] = self._rows(list(key)).get(key, [])
            for one, weight in ((self._known.get(key, []), -1), (self._made[key], 1)):
                tables += one
                weights += [np.full(table.num_rows, weight) for table in one]
        return pa.concat_tables(tables) if tables else pa.table({}), np.concatenate(weights)

    def read(self) -> OutputChange:
        return netted(*self.rows())

    def forget(self) -> None:
        self._made.clear()
        if self._view.delta is not None:
            self._view.delta.clear()

    def commit(self) -> None:
        for key, tables in self._made.items():
            if tables:
                self._known[key] = tables
            else:
                self._known.pop(key, None)
        self._made.clear()

    def close(self) -> None:
        self._view.delta = None

    def _touched(self) -> list[Key]:
        """The key words of the partitions with changed rows."""
        delta = self._view.delta
        assert delta is not None
        places = list(delta.shape.places(self._kept.order.partition))
        return [tuple(key) for key in np.unique(delta.changed()[:, places], axis=0).tolist()]

    def _rows(self, key: list[int] | None) -> dict[Key, list[pa.Table]]:
        """The rows in SQL of all partitions, or of the one with these key words, by these words."""
        found: dict[Key, list[pa.Table]] = {}
        for keys, rows in self._batches(key):
            starts = np.flatnonzero(np.append(True, (keys[1:] != keys[:-1]).any(axis=1)))
            for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
                found.setdefault(tuple(keys[start].tolist()), []).append(rows.slice(start, end - start))
        return found

    def _batches(self, key: list[int] | None) -> Iterator[tuple[np.ndarray, pa.Table]]:
        """Rows in SQL with the key words of their partitions, partition after partition."""
        view, walk = self._view, OrderWalk(self._kept, self._view.reads, key)
        while rows := walk.next():
            words = [word for name in self._kept.order.partition for word in walk.words(name)]
            shown, visible = sql_rows(view, self._evaluate, raw_batch(view, walk, rows))
            if len(visible):
                yield np.column_stack(words)[visible], shown


def partitioned(view: MaintainedView) -> KeptOrder | None:
    """An order by whose partitions a view's change is found: that of all its window functions; None without one."""
    if view.windows is None or view.definition.limit is not None:
        return None
    kept = view.windows.kept
    common = frozenset.intersection(*(frozenset(one.order.partition) for one in kept))
    return next((one for one in kept if common and set(one.order.partition) == common), None)

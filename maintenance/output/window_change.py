"""The change of a view with window functions: the rows that the changed rows of an epoch reach, before and after it.

While somebody listens, a path gathers the rows that have come and gone. The orders themselves have the state after the
epoch. They are put back for as long as the state before it is read. So no row's former values are kept. An epoch costs
O(log N) a changed row, and the rows reached: those of the frames around it, or all that follow it in its partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.output import raw_batch
from sqlfront.maintenance.output.output_change import OutputChange, netted
from sqlfront.maintenance.output.sql_rows import sql_rows_of_all
from sqlfront.maintenance.program.room import check_change
from sqlfront.maintenance.program.rows import BATCH
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.windows.chosen_rows import ChosenRows
from sqlfront.maintenance.windows.order_delta import OrderDelta
from sqlfront.maintenance.windows.reached_rows import ReachedRows
from sqlfront.maintenance.windows.window_stores import WindowStores
from sqlfront.planner.model.window_reach import reaches
from sqlfront.planner.theory.wording import table_name

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.program.machine import Machine
    from sqlfront.maintenance.relation.base_relation import Evaluate


class WindowChange:
    """The change that is gathered from now on; see `ChangeReader`."""

    def __init__(
        self,
        view: MaintainedView,
        stores: WindowStores,
        machine: Machine,
        evaluate: Evaluate,
        memory_limit: Callable[[], float],
    ) -> None:
        self._view, self._stores, self._machine, self._evaluate = view, stores, machine, evaluate
        self._memory_limit, self._row_bytes = (
            memory_limit,
            16 * (len(view.definition.raw) + len(view.definition.columns)),
        )
        self._reaches = reaches(view.definition)
        self._delta = stores.delta = OrderDelta(stores.kept, view.number)

    def rows(self) -> tuple[pa.Table, np.ndarray]:
        import pyarrow as pa

        words, values = self._delta.words()
        if not len(words):
            return pa.table({}), np.empty(0, np.int64)
        come = list(self._side(words, values))
        with self._delta.undone(self._machine):
            gone = list(self._side(words, values))
        raw = [*gone, *come]
        if not raw:
            return pa.table({}), np.empty(0, np.int64)
        rows, visible = sql_rows_of_all(self._view, self._evaluate, raw)
        signs = [-1] * len(gone) + [1] * len(come)
        return rows, np.repeat(signs, [one.num_rows for one in raw])[visible]

    def read(self) -> OutputChange:
        return netted(*self.rows())

    def forget(self) -> None:
        self._delta.clear()

    def commit(self) -> None:
        """What has been gathered goes when the next epoch begins."""

    def close(self) -> None:
        self._stores.delta = None

    def _side(self, words: np.ndarray, values: np.ndarray) -> Iterator[pa.RecordBatch]:
        """The raw rows that are reached, as the orders have them now."""
        keys, copies = self._reached(words, values)
        for first in range(0, len(copies), BATCH):
            some = slice(first, first + BATCH)
            source = ChosenRows(self._stores.kept[0], keys[some], copies[some])
            yield raw_batch(self._view, source, source.rows)

    def _reached(self, words: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows reached in some order, each once: their key words, and which copies of rows they are."""
        bounds, found = self._stores.windows.qualified, list[np.ndarray]()
        for number, (kept, reach) in enumerate(zip(self._stores.kept, self._reaches, strict=True)):
            own = [bound for bound in bounds if bound.value.order == number]
            reached = ReachedRows(kept, reach, words, values, own)
            name = table_name(self._view.name.partition("/")[0])
            check_change(name, reached.rows, self._row_bytes, self._memory_limit)
            found.append(np.column_stack(reached.read()))
            self._view.reads.steps += reached.steps
        rows = found[0] if len(found) == 1 else np.unique(np.concatenate(found), axis=0)
        return rows[:, :-1], rows[:, -1]

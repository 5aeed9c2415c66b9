"""Raw columns that are window functions, for the rows of any source: each copy of a row has values of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.output.aggregate_columns import (
    Sums,
    aggregate_column,
    is_plain_sum,
    plain_averages,
    plain_integers,
    plain_sums,
)
from sqlfront.maintenance.program.rows import Rows
from sqlfront.maintenance.ranked.exact import WHOLE
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.windows.chosen_rows import ChosenRows
from sqlfront.maintenance.windows.located_rows import LocatedRows
from sqlfront.maintenance.windows.order_walk import OrderedBatch
from sqlfront.maintenance.windows.qualified_rows import QualifiedWalk
from sqlfront.maintenance.windows.sought_rows import SoughtRows
from sqlfront.maintenance.windows.whole_partitions import WholePartitions
from sqlfront.maintenance.windows.window_stores import KeptOrder
from sqlfront.maintenance.windows.window_values import FrameSums, other_rows, ranks
from sqlfront.planner.model.query import RawColumn
from sqlfront.planner.model.window_functions import WindowValue
from sqlfront.storage.codecs.wide import wide_integers
from sqlfront.storage.stores.ordered_rows import OrderedRows

if TYPE_CHECKING:
    import pyarrow as pa


STEPS_SOUGHT = 8
"""Rows of whole partitions are read in the time that one row takes along a tree."""

_FEW = 64
"""So many rows are sought before it is known whether their partitions are large: their places tell that, too."""


class WindowColumns:
    """The window functions of copies of a source's rows: those at `repeat` (None: one of each), the first after those
    `skipped` of a row."""

    def __init__(
        self, view: MaintainedView, source: Rows, rows: int, repeat: np.ndarray | None, skipped: np.ndarray | None
    ) -> None:
        self._view, self._source = view, source
        self._repeat = np.arange(rows) if repeat is None else repeat
        if isinstance(source, (OrderedBatch, QualifiedWalk, ChosenRows)):
            self._copies = source.copies
        else:
            self._copies = np.arange(len(self._repeat)) - np.searchsorted(self._repeat, self._repeat)
            self._copies += 0 if skipped is None else skipped[self._repeat]
        self._located: dict[int, LocatedRows] = {}
        self._sought: list[SoughtRows] = []

    def tell(self) -> None:
        """Add the steps that have been taken to the view's meter."""
        self._view.reads.steps += sum(one.steps for one in self._sought)
        self._sought.clear()

    def values(self, raw: RawColumn) -> list[Any]:
        """A raw column of the copies as DuckDB's Python values, of a type in PLAIN, WHOLE or SUMS."""
        value, stores = raw.window, self._view.windows
        assert value is not None and stores is not None
        if raw.over is not None and is_plain_sum(raw.over):
            return plain_sums(raw.over, stores.parts, self._sums(value).values)
        if raw.over is not None and raw.over.kind == "avg" and raw.over.specials is None:
            sums = Sums(stores.parts, stores.kept[value.order].shift, self._sums(value).values)
            return plain_averages(sums, raw.over)
        if raw.variable is not None and raw.type in WHOLE:
            return plain_integers(self._view.codecs[raw.variable], self._other_rows(raw.variable, value))
        if raw.variable is None and raw.over is None:
            found: list[Any] = ranks(value, self._rows(value.order)).tolist()
            return found
        array = self.column(raw)
        return wide_integers(array) if raw.type == "HUGEINT" else array.to_pylist()

    def column(self, raw: RawColumn) -> pa.Array:
        """A raw column of the copies, as Arrow."""
        import pyarrow as pa

        value, stores = raw.window, self._view.windows
        assert value is not None and stores is not None
        if raw.variable is not None:
            return self._view.codecs[raw.variable].decode(self._other_rows(raw.variable, value))
        if raw.over is None:
            return pa.array(ranks(value, self._rows(value.order)))
        return aggregate_column(Sums(stores.parts, stores.kept[value.order].shift, self._sums(value).values), raw.over)

    def _sums(self, value: WindowValue) -> FrameSums:
        assert self._view.windows is not None
        return FrameSums(self._view.windows.kept[value.order], self._rows(value.order), value)

    def _other_rows(self, variable: str, value: WindowValue) -> list[np.ndarray]:
        """The words of a variable in the row that a function reads."""
        assert self._view.windows is not None
        rows = self._rows(value.order)
        if value.function in ("min", "max"):
            return rows.extremes(variable, self._view.codecs[variable], value)
        return rows.words(self._view.windows.kept[value.order].places((variable,)), other_rows(value, rows))

    def _rows(self, number: int) -> LocatedRows:
        """Where the copies stand in an order."""
        if number not in self._located:
            assert self._view.windows is not None
            kept = self._view.windows.kept[number]
            walked = self._source.located(kept) if isinstance(self._source, (OrderedBatch, QualifiedWalk)) else None
            self._located[number] = self._found(kept) if walked is None else walked
        return self._located[number]

    def _found(self, kept: KeptOrder) -> LocatedRows:
        rows = OrderedRows(kept.source.store.table)
        words = [word[self._repeat] for name in kept.shape.variables for word in self._source.words(name)]
        addresses = rows.rows(np.column_stack(words))
        sought = SoughtRows(kept, rows, addresses, self._copies) if len(addresses) <= _FEW else None
        groups = rows.groups_of(addresses) if sought is None else sought.groups
        sizes, most = rows.copies(groups) if sought is None else sought.behind, len(addresses) * STEPS_SOUGHT
        if int(sizes.max(initial=0)) > most or int(sizes[np.unique(groups, return_index=True)[1]].sum()) > most:
            self._sought.append(sought or SoughtRows(kept, rows, addresses, self._copies))
            return self._sought[-1]
        whole = WholePartitions(kept, np.unique(groups))
        self._view.reads.steps += whole.steps
        return whole.located(whole.places_of(addresses, self._copies))

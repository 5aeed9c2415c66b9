"""The change of a view that is the first rows of an order: its rows before an epoch and after it, compared.

Where it is one first row, or that of each group, the ranked tree notes at its root which of them have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.output.output_change import OutputChange, netted
from sqlfront.maintenance.ranked.columns import order_columns
from sqlfront.maintenance.ranked.exact import WHOLE, key_sums, sums_in
from sqlfront.maintenance.ranked.index import RankedIndex
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.order_values import is_held_back

if TYPE_CHECKING:
    import pyarrow as pa

    Column = Callable[["_Keys"], pa.Array]


class KnownRows:
    """The change of a view from its rows before an epoch and after it: those that the readers of its changes know, and
    those that it has when it is read. O(rows).

    No rows are None: nothing tells their types.
    """

    def __init__(self, read: Callable[[], pa.Table | None]) -> None:
        self._read = read
        self._known = self._made = read()

    def rows(self) -> tuple[pa.Table, np.ndarray]:
        import pyarrow as pa

        self._made = self._read()
        sides = [(table, weight) for table, weight in ((self._known, -1), (self._made, 1)) if table is not None]
        weights = [np.full(table.num_rows, weight) for table, weight in sides]
        rows = pa.concat_tables([table for table, _ in sides]) if sides else pa.table({})
        return rows, np.concatenate([np.empty(0, np.int64), *weights])

    def read(self) -> OutputChange:
        return netted(*self.rows())

    def forget(self) -> None:
        self._made = self._known

    def commit(self) -> None:
        self._known = self._made

    def close(self) -> None:
        """The rows go with the reader."""


class NotedGroups:
    """The change of a view that is the first row of each group, from its ranked tree, which notes it from now on.

    O(log N) for each group whose first row changes.
    """

    def __init__(self, index: RankedIndex, names: list[str], columns: list[Column]) -> None:
        self._index, self._names, self._columns = index, names, columns
        index.noted = True

    def rows(self) -> tuple[pa.Table, np.ndarray]:
        import pyarrow as pa

        assert self._index.root.table is not None
        gone, come = self._index.root.table.changed_best()
        keys = _Keys(self._index, np.concatenate([gone, come]))
        rows = pa.Table.from_arrays([column(keys) for column in self._columns], names=self._names)
        return rows, np.repeat(np.array([-1, 1]), [len(gone), len(come)])

    def read(self) -> OutputChange:
        return netted(*self.rows())

    def forget(self) -> None:
        assert self._index.root.table is not None
        self._index.root.table.settle()

    commit = forget

    def close(self) -> None:
        self.forget()
        self._index.noted = False


class _Keys:
    """Rows of an order by their rank words."""

    def __init__(self, index: RankedIndex, keys: np.ndarray) -> None:
        self._index, self.keys = index, keys

    def sums(self, number: int) -> list[int | None]:
        return key_sums(self._index.order, self._index.layout, self.keys, number)


def noted_groups(view: MaintainedView) -> NotedGroups | None:
    """What tells the change of a view that only feeds others, if it is the first row of each group and all columns are
    in the words that its rows are ordered by."""
    definition, limit, index = view.definition, view.definition.limit, view.ranked.get(0)
    if limit is None or (limit.offset, limit.rows) != (0, 1) or not isinstance(index, RankedIndex):
        return None
    if not view.inner or is_held_back(definition, index.order):
        return None
    terms = zip(index.order.terms, index.layout.starts, strict=True)
    held = {term.parts[0][1]: start for term, start in terms if term.form == "value"}
    columns: list[Column] = []
    asked = order_columns(definition, index.order)
    if asked is None:
        return None
    for one in asked:
        if one.raw is not None:
            return None
        if one.variable is not None and one.variable in held:
            columns.append(_variable(view, one.variable, held[one.variable]))
            continue
        term = None if one.variable is not None else index.order.terms[one.term]
        read = sums_in(one.term, term, one.type) if term is not None and term.form == "sum" else None
        if read is None:
            return None
        columns.append(_summed(read, one.type))
    return NotedGroups(index, [name for name, _ in definition.columns], columns)


def _variable(view: MaintainedView, variable: str, start: int) -> Column:
    codec = view.codecs[variable]
    places = range(start, start + codec.words)
    return lambda rows: codec.decode([np.ascontiguousarray(rows.keys[:, place]) for place in places])


def _summed(read: Callable[[_Keys], list[Any]], type_: str) -> Column:
    import pyarrow as pa

    digits, _, scale = type_.removeprefix("DECIMAL(").removesuffix(")").partition(",")
    arrow = pa.int64() if type_ in WHOLE else pa.decimal128(int(digits) if scale else 38, int(scale or 0))
    return lambda rows: pa.array(read(rows), arrow)

"""The change of a view that is the first rows of an order: its rows before an epoch and after it, compared.

Where it is one first row, or that of each group, the ranked tree notes at its root which of them have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.ranked.exact import WHOLE, key_sums, sums_in
from sqlfront.maintenance.ranked.index import RankedIndex
from sqlfront.planner.passes.orders import is_held_back

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.view.maintained_view import MaintainedView

    Column = Callable[["_Keys"], pa.Array]


class TopRows:
    """The rows that the readers of a view's changes know, and those that an epoch makes of them until it is committed.

    No rows are None: nothing tells their types.
    """

    def __init__(self, rows: pa.Table | None) -> None:
        self._known, self._made = rows, rows

    def change(self, read: Callable[[], pa.Table | None]) -> tuple[pa.Table, np.ndarray] | None:
        """The known rows and the new ones, which `read` gives, with weights -1 and 1; None if there are none at all."""
        import pyarrow as pa

        rows = self._made = read()
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

    def close(self) -> None:
        """Nobody reads the changes any more."""


class BestRows:
    """The change of a view that is the first row of each group, from its ranked tree, which notes it from now on.

    O(log N) for each group whose first row changes.
    """

    def __init__(self, index: RankedIndex, names: list[str], columns: list[Column]) -> None:
        self._index, self._names, self._columns = index, names, columns
        index.noted = True

    def change(self, read: Callable[[], pa.Table | None]) -> tuple[pa.Table, np.ndarray] | None:
        """The first rows that are gone and those that have come, with weights -1 and 1; None if there are none."""
        import pyarrow as pa

        assert self._index.root.table is not None
        gone, come = self._index.root.table.changed_best()
        if not len(gone) + len(come):
            return None
        keys = _Keys(self._index, np.concatenate([gone, come]))
        rows = pa.Table.from_arrays([column(keys) for column in self._columns], names=self._names)
        return rows, np.repeat(np.array([-1, 1]), [len(gone), len(come)])

    def forget(self) -> None:
        """Begin to note anew."""
        assert self._index.root.table is not None
        self._index.root.table.settle()

    commit = forget

    def close(self) -> None:
        """Note no more."""
        self.forget()
        self._index.noted = False


class _Keys:
    """Rows of an order by their rank words."""

    def __init__(self, index: RankedIndex, keys: np.ndarray) -> None:
        self._index, self.keys = index, keys

    def sums(self, number: int) -> list[int | None]:
        return key_sums(self._index.order, self._index.layout, self.keys, number)


def best_rows(view: MaintainedView) -> BestRows | None:
    """What tells the change of a view that only feeds others, if it is the first row of each group and all columns are
    in the words that its rows are ordered by."""
    definition, limit, index = view.definition, view.definition.limit, view.ranked.get(0)
    if limit is None or (limit.offset, limit.rows) != (0, 1) or not isinstance(index, RankedIndex):
        return None
    if not view.inner or not view.plan.ranked_only or is_held_back(definition, index.order):
        return None
    raw = {column.name: column for column in definition.raw}
    places = dict(index.order.places)
    starts = zip(index.order.terms, index.layout.starts, strict=True)
    held = {term.parts[0][1]: start for term, start in starts if term.form == "value"}
    columns: list[Column] = []
    for expression, (_, type_) in zip(definition.projection, definition.columns, strict=True):
        plain = raw.get(expression.strip().strip('"'))
        if plain is not None and plain.type == type_ and plain.variable in held:
            columns.append(_variable(view, plain.variable, held[plain.variable]))
            continue
        number = places.get(expression)
        summed = None if number is None or index.order.terms[number].form != "sum" else number
        read = None if summed is None else sums_in(summed, index.order.terms[summed], type_)
        if read is None:
            return None
        columns.append(_summed(read, type_))
    return BestRows(index, [name for name, _ in definition.columns], columns)


def _variable(view: MaintainedView, variable: str, start: int) -> Column:
    codec = view.codecs[variable]
    places = range(start, start + codec.words)
    return lambda rows: codec.decode([np.ascontiguousarray(rows.keys[:, place]) for place in places])


def _summed(read: Callable[[_Keys], list[Any]], type_: str) -> Column:
    import pyarrow as pa

    digits, _, scale = type_.removeprefix("DECIMAL(").removesuffix(")").partition(",")
    arrow = pa.int64() if type_ in WHOLE else pa.decimal128(int(digits) if scale else 38, int(scale or 0))
    return lambda rows: pa.array(read(rows), arrow)

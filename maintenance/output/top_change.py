"""The change of a view that is the first rows of an order: its rows before an epoch and after it, compared.

Where it is one first row, or that of each group, the ranked tree notes at its root which of them have changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.output.output import raw_batch
from sqlfront.maintenance.output.output_change import EncodedChange, OutputChange, netted
from sqlfront.maintenance.output.path_change import ShownWords
from sqlfront.maintenance.output.row_program import RowProgram, netted_words, picked_words, row_program
from sqlfront.maintenance.output.sql_rows import sql_rows
from sqlfront.maintenance.program.shapes import Part
from sqlfront.maintenance.ranked.columns import order_columns
from sqlfront.maintenance.ranked.exact import WHOLE, key_sums, sums_in
from sqlfront.maintenance.ranked.index import RankedIndex
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.order_values import is_held_back

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Evaluate
    from sqlfront.storage.codecs.encoding import Dictionaries

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

    O(log N) for each group whose first row changes. `rows_of` makes the rows of keys, and tells which of them are rows
    of the view.
    """

    def __init__(
        self, view: MaintainedView, index: RankedIndex, rows_of: Callable[[_Keys], tuple[pa.Table, np.ndarray]]
    ) -> None:
        self._view, self._index, self._rows_of = view, index, rows_of
        index.noted = True

    def rows(self) -> tuple[pa.Table, np.ndarray]:
        keys, weights = self._changed()
        rows, visible = self._rows_of(keys)
        return rows, weights[visible]

    def read(self) -> OutputChange:
        return netted(*self.rows())

    def _changed(self) -> tuple[_Keys, np.ndarray]:
        assert self._index.root.table is not None
        gone, come = self._index.root.table.changed_best()
        keys = _Keys(self._view, self._index, np.concatenate([gone, come]))
        return keys, np.repeat(np.array([-1, 1]), [len(gone), len(come)])

    def forget(self) -> None:
        assert self._index.root.table is not None
        self._index.root.table.settle()

    commit = forget

    def close(self) -> None:
        self.forget()
        self._index.noted = False


class NotedRows(NotedGroups):
    """The same where the raw columns of the view are variables, whose words the keys hold: rows are made of words,
    unless DuckDB computes a column."""

    def __init__(
        self, view: MaintainedView, index: RankedIndex, evaluate: Evaluate, dictionaries: Dictionaries
    ) -> None:
        super().__init__(view, index, self._made)
        self._evaluate, self._dictionaries = evaluate, dictionaries
        self._shown = ShownWords(view, evaluate)

    def read(self) -> OutputChange:
        keys, weights = self._changed()
        found = self._program.run(keys, len(weights)) if self._program is not None else None
        if found is None:
            return super().read()
        words, visible = found
        if visible is not None:
            words, weights = picked_words(words, visible), weights[visible]
        words, weights = netted_words(words, weights)
        return EncodedChange(lambda: words, weights, functools.partial(self._shown, words, None))

    @functools.cached_property
    def _program(self) -> RowProgram | None:
        return row_program(self._view, self._evaluate, self._dictionaries)

    def _made(self, keys: _Keys) -> tuple[pa.Table, np.ndarray]:
        return sql_rows(self._view, self._evaluate, raw_batch(self._view, keys, len(keys.keys)))

    def close(self) -> None:
        super().close()
        if (program := vars(self).pop("_program", None)) is not None:
            program.close()


class _Keys:
    """Rows of an order by their rank words, among which those of variables are."""

    def __init__(self, view: MaintainedView, index: RankedIndex, keys: np.ndarray) -> None:
        self._view, self._index, self.keys = view, index, keys

    def words(self, variable: str) -> list[np.ndarray]:
        terms = zip(self._index.order.terms, self._index.layout.starts, strict=True)
        first = next(start for term, start in terms if term.form == "value" and term.parts[0][1] == variable)
        words = self._view.codecs[variable].words
        return [np.ascontiguousarray(self.keys[:, place]) for place in range(first, first + words)]

    def values(self, part: Part) -> np.ndarray:
        """Each is there once."""
        return np.ones((len(self.keys), 1), np.int64)

    def sums(self, number: int) -> list[int | None]:
        return key_sums(self._index.order, self._index.layout, self.keys, number)


def noted_groups(view: MaintainedView, evaluate: Evaluate, dictionaries: Dictionaries) -> NotedGroups | None:
    """What tells the change of a view that is the first row of each group, if all columns are in the words that its
    rows are ordered by. Nobody sees the types of one that only feeds others: its sums are read of these words, too."""
    definition, limit, index = view.definition, view.definition.limit, view.ranked.get(0)
    if limit is None or (limit.offset, limit.rows) != (0, 1) or not isinstance(index, RankedIndex):
        return None
    if is_held_back(definition, index.order):
        return None
    held = {term.parts[0][1] for term in index.order.terms if term.form == "value"}
    if all(raw.kind == "variable" and raw.variable in held for raw in definition.raw):
        return NotedRows(view, index, evaluate, dictionaries)
    columns = _order_values(view, index, held) if view.inner else None
    return None if columns is None else NotedGroups(view, index, _plain_rows(columns))


def _plain_rows(columns: Mapping[str, Column]) -> Callable[[_Keys], tuple[pa.Table, np.ndarray]]:
    """Rows whose columns are made one by one."""
    import pyarrow as pa

    def rows(keys: _Keys) -> tuple[pa.Table, np.ndarray]:
        made = {name: column(keys) for name, column in columns.items()}
        return pa.Table.from_arrays(list(made.values()), names=list(made)), np.arange(len(keys.keys))

    return rows


def _order_values(view: MaintainedView, index: RankedIndex, held: Set[str]) -> dict[str, Column] | None:
    """What makes each column of a view from the words that its rows are ordered by; None if one is not in them."""
    columns: dict[str, Column] = {}
    asked = order_columns(view.definition, index.order)
    if asked is None:
        return None
    for (name, _), one in zip(view.definition.columns, asked, strict=True):
        if one.variable is not None and one.variable in held:
            columns[name] = _variable(view, one.variable)
            continue
        term = None if one.variable is not None or one.raw is not None else index.order.terms[one.term]
        read = sums_in(one.term, term, one.type) if term is not None and term.form == "sum" else None
        if read is None:
            return None
        columns[name] = _summed(read, one.type)
    return columns


def _variable(view: MaintainedView, variable: str) -> Column:
    codec = view.codecs[variable]
    return lambda rows: codec.decode(rows.words(variable))


def _summed(read: Callable[[_Keys], list[Any]], type_: str) -> Column:
    import pyarrow as pa

    digits, _, scale = type_.removeprefix("DECIMAL(").removesuffix(")").partition(",")
    arrow = pa.int64() if type_ in WHOLE else pa.decimal128(int(digits) if scale else 38, int(scale or 0))
    return lambda rows: pa.array(read(rows), arrow)

"""The first rows of a ranked order as Python tuples, without DuckDB: the short way for small reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sqlfront.maintenance.output.aggregate_columns import SUMS
from sqlfront.maintenance.output.python_values import PLAIN, column_of
from sqlfront.maintenance.output.window_columns import WindowColumns
from sqlfront.maintenance.program.rows import BATCH, numbers
from sqlfront.maintenance.program.shapes import COUNT
from sqlfront.maintenance.ranked.columns import order_columns
from sqlfront.maintenance.ranked.cursor import RankedWalk
from sqlfront.maintenance.ranked.exact import WHOLE, BeyondTypeError, values_in
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import Limit, RawColumn
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW

Column = Callable[[RankedWalk, list[list[int]]], list[Any]]


class FirstRows:
    """How the rows of a view's first order are read. Made once; valid while the view's tables are."""

    def __init__(
        self, view: MaintainedView, columns: list[Column], places: list[np.ndarray], windows: dict[int, RawColumn]
    ) -> None:
        self._view, self._windows = view, windows
        self._index, self._meter = view.ranked[0], view.reads
        self._columns, self._distinct = columns, view.ranked[0].distinct
        leaves = [] if self._distinct else list(self._index.leaves.values())
        self._single = len(leaves) if all(leaf.shape.limbs == 1 for leaf in leaves) else 0
        counts = [np.array([(leaf.number, leaf.shape.keys)]) for leaf in leaves]
        self._places = np.concatenate([np.empty((0, 2)), *places, *counts]).astype(np.int64)

    def read(self, limit: Limit) -> list[tuple[Any, ...]] | None:
        """The rows within `limit`; None if a sum does not fit its type, which DuckDB then says. O(log N) a row."""
        try:
            return [row for batch in self.batches(limit, BATCH) for row in batch]
        except BeyondTypeError:
            return None

    def batches(self, limit: Limit, first: int) -> Iterator[list[tuple[Any, ...]]]:
        """The rows within `limit`, in batches that grow, the first of at most `first`. BeyondTypeError as `read`."""
        walk = RankedWalk(self._index, None, self._meter)
        skip, left = limit.offset, limit.rows if limit.rows is not None else BATCH**4
        capacity = first
        while left > 0 and walk.next(min(skip + left, capacity)):
            words = walk.gather(self._places).tolist()
            rows = list(zip(*[column(walk, words) for column in self._columns], strict=True))
            counts = words[len(words) - self._single :]
            single = self._distinct or (self._single and all(count.count(1) == walk.rows for count in counts))
            repeat = None
            if skip or not single:
                many = np.ones(len(rows), np.int64) if self._distinct else numbers(walk, COUNT)
                repeat = np.repeat(np.arange(len(rows)), np.minimum(many, skip + left))
                rows = [rows[place] for place in repeat]
            if self._windows:
                rows = self._with_windows(walk, rows, repeat)
            if skip:
                skip, rows = max(0, skip - len(rows)), rows[skip:]
            yield rows[:left]
            left -= len(rows)
            capacity = min(2 * capacity, BATCH)

    def _with_windows(
        self, walk: RankedWalk, rows: list[tuple[Any, ...]], repeat: np.ndarray | None
    ) -> list[tuple[Any, ...]]:
        """The rows, copies apart, with the values of window functions."""
        found, columns = WindowColumns(self._view, walk, walk.rows, repeat, None), list(zip(*rows, strict=True))
        for place, raw in self._windows.items():
            columns[place] = tuple(found.values(raw))
        found.tell()
        return list(zip(*columns, strict=True))


def reader_of(view: MaintainedView) -> FirstRows | None:
    """How the view's first rows are read; None if DuckDB has to compute a column."""
    order, columns, places = view.definition.orders[0], list[Column](), list[np.ndarray]()
    asked, windows = order_columns(view.definition, order), dict[int, RawColumn]()
    if asked is None:
        return None
    for one in asked:
        if one.raw is not None and one.raw.window is not None:
            if one.type not in (*WHOLE, *PLAIN, *SUMS):
                return None
            windows[len(columns)] = one.raw
            columns.append(lambda walk, words: [None] * walk.rows)
        elif one.raw is not None:
            value = column_of(view, one.raw)
            if value is None:
                return None
            columns.append(_read(value))
        elif one.variable is None:
            summed = values_in(one.term, order.terms[one.term], one.type)
            if summed is None:
                return None
            columns.append(_read(summed))
        elif one.type in WHOLE:
            columns.append(_integers(sum(map(len, places)), _decoded(view, one.variable)))
            places.append(view.ranked[0].source(one.variable))
        elif one.type in PLAIN:
            columns.append(_decoded(view, one.variable))
        else:
            return None
    return FirstRows(view, columns, places, windows)


def _integers(place: int, decoded: Column) -> Column:
    """Whole numbers, whose codes they are, except NULL and one value of BIGINT."""

    def read(walk: RankedWalk, words: list[list[int]]) -> list[Any]:
        values = words[place]
        return decoded(walk, words) if NULL_CODE in values or RESERVED_LOW in values else values

    return read


def _read(values: Callable[[RankedWalk], list[Any]]) -> Column:
    return lambda walk, words: values(walk)


def _decoded(view: MaintainedView, variable: str) -> Column:
    codec = view.codecs[variable]
    return lambda walk, words: codec.decode(walk.words(variable)).to_pylist()

"""The rows among which a view's first rows are, if it is sorted when it is read: others are not decoded whole.

The rank of a row by a part of the order is at most its number in the whole order. So the rows that rank within the
limit by the first items contain those that the limit leaves: all columns of these alone are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.output import Reader, copies_of, field, needed, raw_batch, schema
from sqlfront.maintenance.output.reading import read
from sqlfront.maintenance.program.rows import BATCH, Rows, RowSource
from sqlfront.maintenance.program.shapes import Part
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import Limit, shown_places
from sqlfront.storage.codecs.codec import fixed_values
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Evaluate


_PLACE = "place in the batch"
MANY_ALIKE = 16
"""How many times as many rows as a limit leaves may be decoded because they are alike in the first column."""


def candidates(view: MaintainedView, limit: Limit, evaluate: Evaluate) -> pa.Table:
    """Raw rows of a view, the first ones within the limit among them. O(rows), and O(1) for each column of a row that
    comes before the others by the items that are no text."""
    import pyarrow as pa

    names = _leading(view, limit)
    if not names:
        return pa.Table.from_batches(list(Reader(view)), schema(view))
    columns = [raw for raw in view.definition.raw if raw.name in names]
    batches = [raw_batch(view, walk, rows, repeat, columns=names) for walk, rows, repeat in _batches(view)]
    keys = pa.Table.from_batches(batches, pa.schema([field(view, raw) for raw in columns])).select(names)
    places, passed, found = _within(view, keys, limit, evaluate), 0, []
    for walk, rows, repeat in _batches(view):
        count = rows if repeat is None else len(repeat)
        first, last = np.searchsorted(places, (passed, passed + count))
        own = places[first:last] - passed
        passed += count
        if len(own):
            found.append(raw_batch(view, _Picked(walk, own if repeat is None else repeat[own]), len(own)))
    return pa.Table.from_batches(found, schema(view))


def _within(view: MaintainedView, keys: pa.Table, limit: Limit, evaluate: Evaluate) -> np.ndarray:
    """The places of the rows that rank within the limit by these columns, or by the first of them if that leaves few,
    ascending. O(rows), or O(rows log rows) where DuckDB ranks them."""
    assert limit.end is not None
    directions = [direction for _, direction in view.definition.orders[0].sorting]
    if limit.numbering != "dense_rank" and (numbers := _whole_numbers(keys.column(keys.column_names[0]))) is not None:
        places = _least(*numbers, directions[0], limit.end)
        if len(places) <= MANY_ALIKE * limit.end:
            return places
    order = ", ".join(
        f"{quote(name)} {direction}" for name, direction in zip(keys.column_names, directions, strict=False)
    )
    numbering = "dense_rank" if limit.numbering == "dense_rank" else "rank"
    numbered, ranks = numbers_of(view, keys, f"{numbering}() OVER (ORDER BY {order})", evaluate)
    return np.sort(numbered[ranks <= limit.end])


def _whole_numbers(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray] | None:
    """The values of a column of whole numbers, decimals or dates in units of its type, and where they are NULL; None if
    it is another one, or one is beyond 64 bits."""
    import pyarrow as pa

    type_ = column.type
    if getattr(type_, "type_name", None) == "hugeint" or pa.types.is_decimal128(type_):
        pair = np.dtype((np.int64, 2))
        words = [fixed_values(chunk, pair) for chunk in column.chunks if len(chunk)]
        pairs = np.concatenate([np.empty((0, 2), np.int64), *words])
        values = np.ascontiguousarray(pairs[:, 0])
        nulls = column.is_null().to_numpy()
        return None if ((pairs[:, 1] != values >> 63) & ~nulls).any() else (values, nulls)
    if pa.types.is_signed_integer(type_) or pa.types.is_date32(type_):
        plain = column.cast(pa.int32()) if pa.types.is_date32(type_) else column
        return plain.fill_null(0).to_numpy().astype(np.int64), column.is_null().to_numpy()
    return None


def _least(values: np.ndarray, nulls: np.ndarray, direction: str, end: int) -> np.ndarray:
    """The places, ascending, of the values that at most `end` - 1 others come before. O(values)."""
    ordered = ~values if "DESC" in direction else values
    present, places = ordered[~nulls], np.flatnonzero(~nulls)
    none = np.flatnonzero(nulls)
    before = len(none) if "NULLS FIRST" in direction else 0
    wanted = max(end - before, 0)
    if wanted < len(present):
        bound = np.partition(present, wanted - 1)[wanted - 1] if wanted else None
        places = places[present <= bound] if bound is not None else places[:0]
    taken = before > 0 or len(present) < end
    return np.sort(np.concatenate([places, none])) if taken else places


def numbers_of(view: MaintainedView, rows: pa.Table, number: str, evaluate: Evaluate) -> tuple[np.ndarray, np.ndarray]:
    """The number of each row, a window function of raw columns: the places of the rows, in some order, and the numbers.
    O(rows log rows)."""
    import pyarrow as pa

    types = {raw.name: raw.type for raw in view.definition.raw if raw.name in rows.column_names} | {_PLACE: "BIGINT"}
    placed = rows.append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    found = evaluate(placed, types, [quote(_PLACE), number], settings=view.definition.settings)
    places, numbers = (column.to_numpy() for column in found.columns)
    return places, numbers


def _leading(view: MaintainedView, limit: Limit) -> list[str]:
    """The raw columns by which rows are sorted first, up to one of text; none if all columns have to be decoded."""
    definition = view.definition
    if definition.scalar:  # One row, which is there without rows to aggregate.
        return []
    if limit.end is None or limit.by or shown_places(definition) is None or view.windows is not None:
        return []
    types = {raw.name: raw.type for raw in definition.raw if not raw.is_list}
    found: list[str] = []
    for expression, _ in definition.orders[0].sorting:
        name = expression.strip('"')
        if types.get(name, "VARCHAR") == "VARCHAR":
            break
        found.append(name)
    return found if len(found) < len(definition.raw) else []


def _batches(view: MaintainedView) -> Iterator[tuple[RowSource, int, np.ndarray | None]]:
    """The rows of a view in batches: how many, and which copies of these a bag has."""
    walk = read(view, None, *needed(view))
    while rows := walk.next(BATCH):
        yield walk, rows, copies_of(view, walk, rows)


class _Picked:
    """Some of the rows of a batch."""

    def __init__(self, rows: Rows, places: np.ndarray) -> None:
        self._rows, self._places = rows, places

    def words(self, variable: str) -> list[np.ndarray]:
        return [word[self._places] for word in self._rows.words(variable)]

    def values(self, part: Part) -> np.ndarray:
        return np.ascontiguousarray(self._rows.values(part)[self._places])

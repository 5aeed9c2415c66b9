"""The rows among which a view's first rows are, if it is sorted when it is read: others are not decoded whole.

The rank of a row by a part of the order is at most its number in the whole order. So the rows that rank within the
limit by the first items contain those that the limit leaves: all columns of these alone are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.output import Reader, copies_of, field, needed, raw_batch
from sqlfront.maintenance.output.reading import read, rows_of
from sqlfront.maintenance.program.rows import BATCH, Rows, RowSource
from sqlfront.maintenance.program.shapes import Part
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import Limit, shown_places
from sqlfront.storage.codecs.arrow_batches import arrow_numbers
from sqlfront.storage.codecs.codec import fixed_values
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Evaluate


_PLACE = "place in the batch"
MANY_ALIKE = 16
"""How many times as many rows as a limit leaves may be decoded because they are alike in the first column."""


def candidates(view: MaintainedView, evaluate: Evaluate) -> Iterator[pa.RecordBatch]:
    """Raw rows of a view: all, or, if it is sorted when it is read, some that have the first rows within its limit
    among them. O(rows), and O(1) for each column of a row that comes before the others by the items that are no text.
    """
    limit = view.definition.limit
    names = _leading(view, limit) if limit is not None and rows_of(view).trees else []
    if limit is None or limit.end is None or not names:
        yield from Reader(view)
        return
    if limit.numbering != "dense_rank" and (found := _least_rows(view, names[0], limit.end)) is not None:
        yield from found
        return
    places, passed = _within(view, names, limit, evaluate), 0
    for walk, rows, repeat in _batches(view):
        count = rows if repeat is None else len(repeat)
        first, last = np.searchsorted(places, (passed, passed + count))
        own = places[first:last] - passed
        passed += count
        if len(own):
            yield _picked(view, walk, repeat, own)


def _least_rows(view: MaintainedView, name: str, end: int) -> list[pa.RecordBatch] | None:
    """Rows among which are those that at most `end` - 1 others come before, by a column of whole numbers; None if it is
    no such column, or has too many alike. O(rows)."""
    found: list[pa.RecordBatch] = []
    direction = view.definition.orders[0].sorting[0][1]
    for walk, rows, repeat in _batches(view):
        numbers = _whole_numbers(raw_batch(view, walk, rows, repeat, columns=[name]).column(0))
        places = None if numbers is None else _least(*numbers, direction, end)
        if places is None or len(places) > MANY_ALIKE * end:
            return None
        found.append(_picked(view, walk, repeat, places))
    return found


def _within(view: MaintainedView, names: Sequence[str], limit: Limit, evaluate: Evaluate) -> np.ndarray:
    """The places of the rows that rank within the limit by these columns, ascending. O(rows log rows)."""
    import pyarrow as pa

    directions = [direction for _, direction in view.definition.orders[0].sorting]
    order = ", ".join(f"{quote(name)} {direction}" for name, direction in zip(names, directions, strict=False))
    numbering = "dense_rank" if limit.numbering == "dense_rank" else "rank"
    batches = [raw_batch(view, walk, rows, repeat, columns=names) for walk, rows, repeat in _batches(view, names)]
    fields = [field(view, raw) for raw in view.definition.raw if raw.name in names]
    keys = pa.Table.from_batches(batches, pa.schema(fields))
    numbered, ranks = numbers_of(view, keys, f"{numbering}() OVER (ORDER BY {order})", evaluate)
    return np.sort(numbered[ranks <= limit.end])


def _whole_numbers(column: pa.Array) -> tuple[np.ndarray, np.ndarray] | None:
    """The values of a column of whole numbers, decimals or dates in units of its type, and where they are NULL; None if
    it is another one, or one is beyond 64 bits."""
    import pyarrow as pa

    type_ = column.type
    if getattr(type_, "type_name", None) == "hugeint" or pa.types.is_decimal128(type_):
        pairs = fixed_values(column, np.dtype((np.int64, 2)))
        values, nulls = np.ascontiguousarray(pairs[:, 0]), _nulls(column)
        return None if ((pairs[:, 1] != values >> 63) & ~nulls).any() else (values, nulls)
    if pa.types.is_signed_integer(type_) or pa.types.is_date32(type_):
        plain = column.cast(pa.int32()) if pa.types.is_date32(type_) else column
        return plain.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), _nulls(column)
    return None


def _nulls(column: pa.Array) -> np.ndarray:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def first_places(view: MaintainedView, rows: pa.Table, limit: Limit) -> np.ndarray | None:
    """The places of the rows that a limit leaves, in order; None if that takes more than whole numbers: groups, ties
    that are kept together, or equal numbers before an item of another type. O(rows log rows)."""
    if limit.by or limit.has_ties:
        return None
    keys, whole = list[np.ndarray](), True
    for expression, direction in view.definition.orders[0].sorting:
        name = expression.strip('"')
        found = _whole_numbers(rows.column(name).combine_chunks()) if name in rows.column_names else None
        if found is None:
            whole = False
            break
        values, nulls = found
        keys += [nulls ^ ("NULLS FIRST" in direction), np.where(nulls, 0, ~values if "DESC" in direction else values)]
    if not keys:
        return None
    places, end = np.lexsort(keys[::-1]), rows.num_rows if limit.end is None else limit.end
    if not whole:
        near = places[: end + 1]
        if np.logical_and.reduce([key[near[1:]] == key[near[:-1]] for key in keys]).any():
            return None
    return places[limit.offset : end]


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
    types = {raw.name: raw.type for raw in view.definition.raw if raw.name in rows.column_names} | {_PLACE: "BIGINT"}
    placed = rows.append_column(_PLACE, arrow_numbers(np.arange(rows.num_rows)))
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
    return found if len(found) < len(definition.raw) else found[:-1]


def _batches(
    view: MaintainedView, names: Sequence[str] | None = None
) -> Iterator[tuple[RowSource, int, np.ndarray | None]]:
    """Batches of a view with these columns, or all: the number of rows, and the places of a bag's copies."""
    walk = read(view, None, *needed(view, names))
    while rows := walk.next(BATCH):
        yield walk, rows, copies_of(view, walk, rows)


def _picked(view: MaintainedView, walk: RowSource, repeat: np.ndarray | None, places: np.ndarray) -> pa.RecordBatch:
    """The raw columns of some of a batch's rows."""
    return raw_batch(view, _Picked(walk, places if repeat is None else repeat[places]), len(places))


class _Picked:
    """Some of the rows of a batch."""

    def __init__(self, rows: Rows, places: np.ndarray) -> None:
        self._rows, self._places = rows, places

    def words(self, variable: str) -> list[np.ndarray]:
        return [word[self._places] for word in self._rows.words(variable)]

    def values(self, part: Part) -> np.ndarray:
        return np.ascontiguousarray(self._rows.values(part)[self._places])

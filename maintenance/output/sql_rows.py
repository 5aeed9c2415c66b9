"""A view's rows in SQL as Arrow: all of them, and those whose raw columns are given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.output.first_candidates import candidates, first_places, numbers_of
from sqlfront.maintenance.output.output import Reader, schema
from sqlfront.maintenance.output.reading import rows_of
from sqlfront.maintenance.program.rows import BATCH
from sqlfront.maintenance.relation.bad_rows import uncomputable
from sqlfront.maintenance.relation.guards import in_order, unused_names
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import Limit, shown_places
from sqlfront.storage.codecs.arrow_batches import arrow_numbers, short_text
from sqlfront.storage.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Evaluate


def view_batches(
    view: MaintainedView, evaluate: Evaluate, raw: Iterable[pa.RecordBatch] | None = None
) -> Iterator[pa.RecordBatch]:
    """A view's SQL rows, one per copy; if raw rows are given, those that these make."""
    if raw is None and view.definition.limit is not None and rows_of(view).trees:
        yield from first_rows(view, view.definition.limit, evaluate)
        return
    for batch in Reader(view) if raw is None else raw:
        yield from sql_rows(view, evaluate, batch)[0].to_batches()


def scanned_batches(
    view: MaintainedView, evaluate: Evaluate, raw: Iterable[pa.RecordBatch] | None, computed: bool
) -> Iterator[pa.RecordBatch]:
    """What DuckDB scans for a view: SQL rows, if they are `computed` here, else raw ones, from which it computes them;
    all, or those that raw rows make."""
    if computed:
        return view_batches(view, evaluate, raw)
    return candidates(view, evaluate) if raw is None else iter(raw)


def scanned_schema(view: MaintainedView, evaluate: Evaluate, computed: bool) -> pa.Schema:
    """The Arrow schema of what DuckDB scans for a view."""
    return sql_schema(view, evaluate) if computed else schema(view)


def sql_schema(view: MaintainedView, evaluate: Evaluate) -> pa.Schema:
    """The Arrow schema of a view's SQL rows."""
    import pyarrow as pa

    if view.output_schema is None:
        sql_rows(view, evaluate, pa.Table.from_batches([], schema(view)))
    return view.output_schema


def is_straight(view: MaintainedView, evaluate: Evaluate) -> bool:
    """Whether each of a view's columns is a raw column or a constant, so that none is computed when it is read."""
    import pyarrow as pa

    if shown_places(view.definition) is None:
        return False
    sql_schema(view, evaluate)
    return _straight(view, pa.Table.from_batches([], schema(view))) is not None


def no_rows(view: MaintainedView, evaluate: Evaluate) -> pa.Table:
    """A view's SQL columns without a row."""
    import pyarrow as pa

    return pa.Table.from_batches([], sql_schema(view, evaluate))


def view_rows(view: MaintainedView, evaluate: Evaluate) -> pa.Table | None:
    """All of a view's SQL rows; None if there are none."""
    import pyarrow as pa

    batches = list(view_batches(view, evaluate))
    return pa.Table.from_batches(batches) if batches else None


def first_rows(view: MaintainedView, limit: Limit, evaluate: Evaluate) -> Iterator[pa.RecordBatch]:
    """The rows within a limit of a view that is sorted when it is read. O(rows log rows)."""
    import pyarrow as pa

    table = pa.Table.from_batches(candidates(view, evaluate), schema(view)).combine_chunks()
    for raw in table.to_batches():
        rows, visible = sql_rows(view, evaluate, raw)
        kept = pa.Table.from_batches([raw]).take(arrow_numbers(visible))
        first = first_places(view, kept, limit)
        if first is None:
            first = _numbered(view, kept, limit, evaluate)
        yield from rows.take(arrow_numbers(first)).combine_chunks().to_batches()


def _numbered(view: MaintainedView, rows: pa.Table, limit: Limit, evaluate: Evaluate) -> np.ndarray:
    """The places of the rows that a limit leaves, in order, by DuckDB. O(rows log rows)."""
    sorting = ", ".join(f"({expression}) {direction}" for expression, direction in view.definition.orders[0].sorting)
    number = limit.number(", ".join(f"({expression})" for expression in limit.by), sorting)
    places, numbers = numbers_of(view, rows, number, evaluate)
    within = (numbers > limit.offset) & (numbers <= (len(numbers) if limit.end is None else limit.end))
    return places[within][np.argsort(numbers[within], kind="stable")]


def sql_rows(view: MaintainedView, evaluate: Evaluate, raw: pa.RecordBatch | pa.Table) -> tuple[pa.Table, np.ndarray]:
    """A view's columns from its raw columns; and which of the rows HAVING lets through."""
    import pyarrow as pa

    definition = view.definition
    names = [name for name, _ in definition.columns]
    if not raw.num_rows and view.output_schema is not None:
        return pa.Table.from_batches([], view.output_schema), np.arange(0)
    if (rows := _straight(view, raw)) is not None:
        return rows, np.arange(raw.num_rows)
    types = {column.name: column.type for column in definition.raw} or {"no column": "TINYINT"}
    outputs = zip(definition.projection, definition.columns, strict=True)
    casts = [f"CAST({expression} AS {type_})" for expression, (_, type_) in outputs]
    filters = {}
    if definition.having:
        (name,) = unused_names(types, 1)
        filters = {name: in_order([definition.having])}
        casts = [*(f'CASE WHEN "{name}" THEN {cast} END' for cast in casts), f'"{name}"']
    try:
        rows = evaluate(raw, types, casts, filters, definition.settings)
    except DataError as error:
        raise uncomputable(view.name, "a row", error) from error
    visible = np.arange(raw.num_rows)
    if definition.having:
        visible = np.flatnonzero(rows.column(rows.num_columns - 1).to_numpy())
        rows = rows.select(range(rows.num_columns - 1)).take(arrow_numbers(visible))
    rows = rows.rename_columns(names)
    view.output_schema, view.output_row = rows.schema, rows.take(pa.array([0])) if len(rows) else view.output_row
    return rows, visible


def sql_rows_of_all(
    view: MaintainedView, evaluate: Evaluate, raw: Sequence[pa.RecordBatch]
) -> tuple[pa.Table, np.ndarray]:
    """`sql_rows` of all these batches, one after the other: in one query, if they have one schema and are few."""
    import pyarrow as pa

    if sum(one.num_rows for one in raw) <= BATCH and all(one.schema == raw[0].schema for one in raw):
        return sql_rows(view, evaluate, pa.Table.from_batches(raw).combine_chunks())
    found = [sql_rows(view, evaluate, one) for one in raw]
    starts = np.cumsum([0, *(one.num_rows for one in raw)])
    places = [start + visible for start, (_, visible) in zip(starts, found, strict=False)]
    return pa.concat_tables([rows for rows, _ in found]), np.concatenate(places)


def _straight(view: MaintainedView, raw: pa.RecordBatch | pa.Table) -> pa.Table | None:
    """A view's columns where each is a raw column or a constant. DuckDB has told the constants' types and values once.
    Texts and decimals are cast: they are few."""
    import pyarrow as pa

    places, schema, row = shown_places(view.definition), view.output_schema, view.output_row
    if places is None or schema is None or (row is None and None in places):
        return None
    arrays = []
    for number, (place, type_) in enumerate(zip(places, schema.types, strict=True)):
        if place is None:
            assert row is not None
            arrays.append(row.column(number).take(arrow_numbers(np.zeros(raw.num_rows, np.int64))))
            continue
        array = as_shown(raw.column(place), type_)
        if array is None:
            return None
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def as_shown(array: Any, type_: pa.DataType) -> Any:
    """A raw column in the type in which DuckDB shows it; None if it takes more than another width of texts or
    decimals."""
    import pyarrow as pa

    own = array.type
    if own == type_:
        return array
    if type_ == pa.string() and isinstance(array, pa.LargeStringArray):
        return short_text(array)
    short = type_ == pa.string() and array.nbytes < 2**31
    wider = pa.types.is_decimal(own) and pa.types.is_decimal(type_) and own.scale == type_.scale
    if short or (wider and own.precision == type_.precision):
        array = array.cast(type_)
    return array if array.type == type_ else None

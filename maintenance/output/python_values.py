"""Raw columns of a view's rows as the Python values that DuckDB gives for them, without DuckDB: for small reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlfront.maintenance.output.aggregate_columns import Sums, is_plain_sum, plain_averages, plain_integers, plain_sums
from sqlfront.maintenance.output.output import raw_column
from sqlfront.maintenance.program.rows import RowSource
from sqlfront.maintenance.ranked.exact import WHOLE, BeyondTypeError
from sqlfront.maintenance.view.distinct_values import Groups
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import RawColumn
from sqlfront.storage.errors import DataError

Column = Callable[[RowSource], list[Any]]

PLAIN = {"BOOLEAN", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
"""Types whose Arrow values are DuckDB's Python values."""


def column_of(view: MaintainedView, raw: RawColumn) -> Column | None:
    """What gives a raw column of a walk's rows; None if Arrow's Python values of the type are not DuckDB's. It raises
    BeyondTypeError for a sum that does not fit its type, which DuckDB then says."""
    if raw.window is not None or raw.is_list:
        return None
    if raw.distinct_set is not None:
        return _kept(view, raw, raw.distinct_set) if raw.type in WHOLE or _is_plain(raw.type) else None
    if raw.kind == "variable" and raw.variable is not None:
        if raw.type in WHOLE:
            variable, codec = raw.variable, view.codecs[raw.variable]
            return lambda walk: plain_integers(codec, walk.words(variable))
        return _decoded(view, raw) if _is_plain(raw.type) else None
    parts = [frozenset(measure.factors) for measure in view.definition.measures]
    if is_plain_sum(raw):
        return lambda walk: plain_sums(raw, parts, walk.values)
    if raw.kind == "avg" and raw.specials is None:
        return lambda walk: _listed(lambda: plain_averages(Sums(parts, view.shift, walk.values), raw))
    return _decoded(view, raw) if raw.type == "DOUBLE" or raw.type.startswith("DECIMAL(") else None


def _is_plain(type_: str) -> bool:
    return type_ in PLAIN or type_.startswith("DECIMAL(")


def _decoded(view: MaintainedView, raw: RawColumn) -> Column:
    return lambda walk: _listed(lambda: raw_column(view, walk, raw).to_pylist())


def _kept(view: MaintainedView, raw: RawColumn, number: int) -> Column:
    """What distinct values tell about each row's group."""
    return lambda walk: _listed(lambda: Groups(view, number, walk, walk.rows).column(raw).to_pylist())


def _listed(column: Callable[[], list[Any]]) -> list[Any]:
    try:
        return column()
    except (DataError, ValueError, OverflowError) as error:  # DuckDB shows dates that Python does not have.
        raise BeyondTypeError from error

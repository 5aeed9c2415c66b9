"""Raw columns of a view's rows as the Python values that DuckDB gives for them, without DuckDB: for small reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.output.distinct_values import Groups
from sqlfront.maintenance.output.output import raw_column
from sqlfront.maintenance.program.rows import RowSource, numbers
from sqlfront.maintenance.ranked.exact import WHOLE, BeyondTypeError
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import RawColumn
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW

if TYPE_CHECKING:
    import pyarrow as pa

Column = Callable[[RowSource], list[Any]]

PLAIN = {"BOOLEAN", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
"""Types whose Arrow values are DuckDB's Python values."""
SUMS = {"BIGINT": 63, "HUGEINT": 127}


def column_of(view: MaintainedView, raw: RawColumn) -> Column | None:
    """What gives a raw column of a walk's rows; None if Arrow's Python values of the type are not DuckDB's. It raises
    BeyondTypeError for a sum that does not fit its type, which DuckDB then says."""
    if raw.window is not None or raw.is_list:
        return None
    if raw.distinct_set is not None:
        return _kept(view, raw, raw.distinct_set) if raw.type in WHOLE or _is_plain(raw.type) else None
    if raw.kind == "variable" and raw.variable is not None:
        if raw.type in WHOLE:
            return _integers(view, raw.variable)
        return _decoded(view, raw) if _is_plain(raw.type) else None
    if raw.kind in ("sum", "count") and raw.type in SUMS and raw.specials is None:
        return _sums(view, raw)
    return _decoded(view, raw) if raw.type == "DOUBLE" or raw.type.startswith("DECIMAL(") else None


def _is_plain(type_: str) -> bool:
    return type_ in PLAIN or type_.startswith("DECIMAL(")


def _decoded(view: MaintainedView, raw: RawColumn) -> Column:
    return lambda walk: _listed(lambda: raw_column(view, walk, raw))


def _kept(view: MaintainedView, raw: RawColumn, number: int) -> Column:
    """What distinct values tell about each row's group."""
    return lambda walk: _listed(lambda: Groups(view, number, walk, walk.rows).column(raw))


def _listed(column: Callable[[], pa.Array]) -> list[Any]:
    try:
        found: list[Any] = column().to_pylist()
    except (DataError, ValueError, OverflowError) as error:  # DuckDB shows dates that Python does not have.
        raise BeyondTypeError from error
    return found


def _integers(view: MaintainedView, variable: str) -> Column:
    """Whole numbers, whose codes they are, except NULL and one value of BIGINT."""
    codec = view.codecs[variable]

    def read(walk: RowSource) -> list[Any]:
        words = walk.words(variable)
        values: list[Any] = words[0].tolist()
        return codec.decode(words).to_pylist() if NULL_CODE in values or RESERVED_LOW in values else values

    return read


def _sums(view: MaintainedView, raw: RawColumn) -> Column:
    parts = [frozenset(measure.factors) for measure in view.definition.measures]
    terms = [(coefficient, parts[measure]) for coefficient, measure in raw.terms]
    present, bound = None if raw.present is None else parts[raw.present], 2 ** SUMS[raw.type]

    def read(walk: RowSource) -> list[Any]:
        totals: list[Any] = [0] * walk.rows
        for coefficient, part in terms:
            totals = [
                total + coefficient * _whole(value) for total, value in zip(totals, walk.values(part), strict=True)
            ]
        if any(not -bound <= total < bound for total in totals):
            raise BeyondTypeError
        if present is None:
            return totals
        return [total if count else None for total, count in zip(totals, numbers(walk, present), strict=True)]

    return read


def _whole(limbs: np.ndarray) -> int:
    """An integer of several limbs."""
    return int(limbs[0]) if len(limbs) == 1 else int.from_bytes(limbs.tobytes(), "little", signed=True)

"""Batches of changes from outside: anything with `__arrow_c_stream__`, to rows in column order and weights."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.storage.codecs.casting import session
from sqlfront.storage.codecs.transport import exported
from sqlfront.storage.errors import DataError, IntegrityError, ProgrammingError

if TYPE_CHECKING:
    import pyarrow as pa

_SIGNS = {"insert": 1, "delete": -1, "update_preimage": -1, "update_postimage": 1}
_VALUES = np.array(list(_SIGNS.values()), np.int64)
WEIGHT, CHANGE_TYPE = "_weight", "_change_type"
VARIANT_NAME = b"arrow.parquet.variant"


def read_changes(
    what: str,
    columns: Sequence[Column],
    changes: Any,
    defaults: dict[str, str] | None = None,
    unread: Set[str] = frozenset(),
) -> tuple[pa.Table | pa.RecordBatch, np.ndarray | None]:
    """The rows of a table's changes in the table's column order, and their weights (None: all inserts).

    Columns are matched by name, without case, in any order. `_weight` holds signed multiplicities,
    `_change_type` insert, delete, update_preimage or update_postimage; there may be one of them.
    Columns that are `unread` (casefolded) may be missing, and are NULL then.
    Raises ProgrammingError for unknown, doubled or missing columns, DataError for bad control values.
    """
    import pyarrow as pa

    from sqlfront.storage.codecs.arrow_batches import in_one_chunk

    rows = in_one_chunk(as_arrow(what, changes))
    names = [name.casefold() for name in rows.schema.names]
    position = {name: i for i, name in enumerate(names)}
    if len(position) < len(names):
        raise ProgrammingError(f"the changes of {what} have two columns of one name", hint="rename one")
    if WEIGHT in position and CHANGE_TYPE in position:
        raise ProgrammingError(
            f"the changes of {what} have both {WEIGHT} and {CHANGE_TYPE}", hint="leave one of them out"
        )
    weights = _weights(what, rows, position)
    known = {column.name.casefold() for column in columns}
    unknown = [rows.schema.names[i] for name, i in position.items() if name not in known | {WEIGHT, CHANGE_TYPE}]
    if unknown:
        raise ProgrammingError(
            f"{what} has no column {', '.join(unknown)}", hint="its columns: " + ", ".join(c.name for c in columns)
        )
    picked = []
    for column in columns:
        at = position.get(column.name.casefold())
        if at is None and column.name.casefold() in unread:
            picked.append(pa.nulls(rows.num_rows))
            continue
        if at is None:
            picked.append(_default(what, column, rows.num_rows, defaults or {}))
            continue
        values = _typed(rows.schema.field(at), rows.column(at))
        if column.not_null and values.null_count:
            raise IntegrityError(
                f"a change of {what} has NULL in column {column.name}",
                why="the column is NOT NULL",
                hint="give a value",
            )
        picked.append(values)
    kind = type(rows)
    return kind.from_arrays(picked, names=[column.name for column in columns]), weights


def as_arrow(what: str, changes: Any) -> pa.Table | pa.RecordBatch:
    """Changes from anything that exports Arrow. ProgrammingError for other objects."""
    import pyarrow as pa

    from sqlfront.storage.codecs.arrow_batches import as_arrow_rows

    if (rows := as_arrow_rows(changes)) is not None:
        return rows
    if hasattr(changes, "__arrow_c_stream__"):
        return pa.table(changes)
    if hasattr(changes, "__arrow_c_array__"):
        return pa.record_batch(changes)
    raise ProgrammingError(
        f"the changes of {what} are a {type(changes).__name__}",
        why="changes come as Arrow data: an object with __arrow_c_stream__",
        hint="pass a pyarrow Table or RecordBatch, a pandas or polars DataFrame, or a DuckDB relation",
    )


def _typed(field: pa.Field, values: Any) -> Any:
    """A column whose type says what its field does: that it is a VARIANT."""
    if (field.metadata or {}).get(b"ARROW:extension:name") != VARIANT_NAME:
        return values
    from sqlfront.storage.codecs.variant_bytes import as_variant

    return as_variant(values)


def _weights(what: str, rows: Any, position: dict[str, int]) -> np.ndarray | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if WEIGHT in position:
        column = rows.column(position[WEIGHT])
        if not pa.types.is_integer(column.type):
            raise DataError(f"{WEIGHT} of {what} is {column.type}", hint="give whole numbers")
        if column.null_count:
            raise DataError(f"{WEIGHT} of {what} is NULL in some row", hint="give every row a weight")
        return column.to_numpy().astype(np.int64, copy=False)
    if CHANGE_TYPE not in position:
        return None
    column = rows.column(position[CHANGE_TYPE])
    signs = pc.index_in(column, _kinds(column.type))
    if signs.null_count:
        bad = next(value for value in column.to_pylist() if value not in _SIGNS)
        raise DataError(f"{CHANGE_TYPE} of {what} is {bad!r} in some row", hint="one of " + ", ".join(_SIGNS))
    return _VALUES[signs.to_numpy()]


@cache
def _kinds(type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.array(list(_SIGNS), type_)


def _default(what: str, column: Column, rows: int, defaults: dict[str, str]) -> Any:
    default = {name.casefold(): text for name, text in defaults.items()}.get(column.name.casefold())
    if default is None:
        raise ProgrammingError(
            f"the changes of {what} miss column {column.name}", why="it has no DEFAULT", hint="add the column"
        )
    con = session()
    con.execute("SET arrow_lossless_conversion = true")
    sql = f"SELECT CAST(({default}) AS {column.type}) AS d FROM range({rows})"
    return exported(con.sql(sql)).to_arrow_table().column(0).combine_chunks()

"""Batches of changes from outside: anything with `__arrow_c_stream__`, to rows in column order and weights."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.maintenance.relation.ingest import KINDS
from sqlfront.storage.codecs.casting import session
from sqlfront.storage.codecs.transport import exported
from sqlfront.storage.errors import DataError, IntegrityError, ProgrammingError

if TYPE_CHECKING:
    import pyarrow as pa

_VALUES = np.array([*KINDS.values(), 0], np.int64)
_FEW = 256
"""Of so many rows, control values are read one by one."""
_MOST_MATCHES = 1024
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
    match = _match(what, columns, rows.schema)
    weights = None
    if match.control is not None:
        weights = _weights(what, rows, rows.schema.names[match.control], match.control)
    for column, place in match.required:
        if rows.column(place).null_count:
            raise IntegrityError(
                f"a change of {what} has NULL in column {column.name}",
                why="the column is NOT NULL",
                hint="give a value",
            )
    kind, called = type(rows), [column.name for column in columns]
    if match.selected is not None:
        taken = rows.select(match.selected)
        return (taken if match.is_named else taken.rename_columns(called)), weights
    picked = []
    for column, at in zip(columns, match.places, strict=True):
        if at is not None:
            picked.append(_typed(rows.schema.field(at), rows.column(at)))
        elif column.name.casefold() in unread:
            picked.append(pa.nulls(rows.num_rows))
        else:
            picked.append(_default(what, column, rows.num_rows, defaults or {}))
    return kind.from_arrays(picked, names=called), weights


class _Match(NamedTuple):
    """Which columns of changes of this `schema` are those of a table: their `places`, None for one that is missing, and
    the place of the control values, if there are some. `required` are the columns that must not be NULL, with their
    places. `selected` are the places if nothing else has to be done than to
    take them, or to give them the table's names, unless they have them (`is_named`)."""

    schema: pa.Schema
    columns: Sequence[Column]
    places: tuple[int | None, ...]
    control: int | None
    required: list[tuple[Column, int]]
    selected: list[int] | None
    is_named: bool


_matches: dict[str, _Match] = {}
"""Of each table the last match: a stream's batches have one schema."""


def _match(what: str, columns: Sequence[Column], schema: pa.Schema) -> _Match:
    import pyarrow as pa

    last = _matches.get(what)
    if last is not None and last.columns is columns and last.schema.equals(schema, check_metadata=True):
        return last
    names = schema.names
    places, control = _matched(what, columns, names)
    selected = [at for at in places if at is not None]
    required = [(column, at) for column, at in zip(columns, places, strict=True) if column.not_null and at is not None]
    if None in places or any(map(pa.types.is_struct, schema.types)):
        return _Match(schema, columns, places, control, required, None, False)
    is_named = [names[at] for at in selected] == [column.name for column in columns]
    if len(_matches) > _MOST_MATCHES:
        _matches.clear()
    _matches[what] = _Match(schema, columns, places, control, required, selected, is_named)
    return _matches[what]


def _matched(what: str, columns: Sequence[Column], names: Sequence[str]) -> tuple[tuple[int | None, ...], int | None]:
    """The places of a table's columns among those of its changes, None for one that is missing, and that of the control
    values, if there are some."""
    position = {name.casefold(): place for place, name in enumerate(names)}
    if len(position) < len(names):
        raise ProgrammingError(f"the changes of {what} have two columns of one name", hint="rename one")
    if WEIGHT in position and CHANGE_TYPE in position:
        raise ProgrammingError(
            f"the changes of {what} have both {WEIGHT} and {CHANGE_TYPE}", hint="leave one of them out"
        )
    known = {column.name.casefold() for column in columns}
    unknown = [names[place] for name, place in position.items() if name not in known | {WEIGHT, CHANGE_TYPE}]
    if unknown:
        raise ProgrammingError(
            f"{what} has no column {', '.join(unknown)}", hint="its columns: " + ", ".join(c.name for c in columns)
        )
    places = tuple(position.get(column.name.casefold()) for column in columns)
    return places, position.get(WEIGHT, position.get(CHANGE_TYPE))


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


def _weights(what: str, rows: Any, name: str, place: int) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = rows.column(place)
    if name.casefold() == WEIGHT:
        if not pa.types.is_integer(column.type):
            raise DataError(f"{WEIGHT} of {what} is {column.type}", hint="give whole numbers")
        if column.null_count:
            raise DataError(f"{WEIGHT} of {what} is NULL in some row", hint="give every row a weight")
        return column.to_numpy().astype(np.int64, copy=False)
    if rows.num_rows <= _FEW:
        signs = np.array([KINDS.get(str(value), 0) for value in column.to_pylist()], np.int64)
    else:
        places = pc.fill_null(pc.index_in(column, _kinds(column.type)), len(KINDS))
        signs = _VALUES[places.to_numpy()]
    if not signs.all():
        bad = column[int(np.flatnonzero(signs == 0)[0])].as_py()
        raise DataError(f"{CHANGE_TYPE} of {what} is {bad!r} in some row", hint="one of " + ", ".join(KINDS))
    return signs


@cache
def _kinds(type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.array(list(KINDS), type_)


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

"""Batches of changes to ordinary tables: written to DuckDB in the open transaction, deletes before inserts.

The changes come back through the table's triggers if a view reads it. Rows of one table that only come are one INSERT,
which tells its changes itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.database.elsewhere import bodies_found
from sqlfront.database.reserved import is_reserved, reserved
from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.capture.setup import written_columns
from sqlfront.storage.capture.trigger_sql import table_sql
from sqlfront.storage.codecs.transport import arrived_sql
from sqlfront.storage.errors import DataError, IntegrityError, InternalError, ProgrammingError
from sqlfront.storage.sql_text import exact, quote
from sqlfront.write.changes import as_arrow, read_changes
from sqlfront.write.returned import FEW, Telling, relation_of, run_told, tells_alone

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.sessions import Session
    from sqlfront.database.transactions import Transaction

_GIVEN = "__sqlfront_changes"


@dataclass(frozen=True)
class Netted:
    """The changes of one ordinary table, netted and checked but not written: a temporary table of the distinct rows,
    and one of those that are deleted if any may be."""

    name: str
    table: str
    columns: list[Column]
    net: str
    gone: str
    deletes: bool


def insert_rows(session: Session, name: str, changes: Any) -> Transaction | None:
    """Insert the rows of one table, as one epoch of the transaction that is returned; None, with nothing done, if rows
    are deleted, or no view reads the table, or triggers have to capture the change. It raises as `net_changes` does.
    O(rows)."""
    import duckdb
    import pyarrow as pa

    table, columns = table_columns(session, name)
    relation = relation_of(session, table) if tells_alone(session) else None
    if relation is None:
        return None
    rows, present, _, weights = _given(session, name, table, columns, changes)
    if weights is not None and not (weights == 1).all():
        return None
    given = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    written = [column for column in columns if column in present]
    values = ", ".join(_value(column, None, given) for column in written)
    text = f"INSERT INTO {table_sql(session.database.name, table)} ({_names(written)}) SELECT {values} FROM {_GIVEN}"
    session.duck.register(_GIVEN, given)
    try:
        with bodies_found(session):
            found = run_told(session, relation, [Telling(text, 1, many=given.num_rows > FEW)])
    except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
        raise _unfit(name, error) from error
    finally:
        with suppress(duckdb.TransactionException):  # Of an aborted transaction, which takes the name along.
            session.duck.unregister(_GIVEN)
    return None if found is None else found[1]


def net_changes(session: Session, name: str, changes: Any, number: int) -> Netted:
    """Net the changes of an ordinary table and check its deletes; -n needs n copies of the row.

    A missing column takes its DEFAULT. Raises ProgrammingError for wrong columns, DataError for values that do not
    fit, IntegrityError, naming the row, when one is deleted more often than it is there. `number` tells apart
    the tables of one epoch. O(changes), and a scan of the table when there are deletes.
    """
    table, columns = table_columns(session, name)
    in_full = table_sql(session.database.name, table)
    rows, _, defaults, weights = _given(session, name, table, columns, changes)
    deletes = weights is not None and bool((weights < 0).any())
    net, gone = f"temp.__sqlfront_net_{number}", f"temp.__sqlfront_gone_{number}"
    netted = Netted(name, in_full, columns, net, gone, deletes)
    _net(session.duck, netted, defaults, rows, weights)
    if deletes:
        _check_deletes(session.duck, netted)
    return netted


def write_netted(session: Session, netted: Netted) -> None:
    """Write netted changes in the open transaction, deletes before inserts; constraints apply.

    Of a row that is deleted all copies go, and those that stay come back.
    """
    con, names = session.duck, _names(netted.columns)
    copies = f"SELECT {names}, __weight AS copies FROM {netted.net} WHERE __weight > 0"
    if netted.deletes:
        _delete(con, netted)
        copies = f"SELECT {names}, __held + __weight AS copies FROM {netted.gone} UNION ALL {copies}"
    rows = f"SELECT {names}, unnest(range(copies)) FROM ({copies})"
    con.execute(f"INSERT INTO {netted.table} ({names}) SELECT {names} FROM ({rows})")
    con.execute(f"DROP TABLE {netted.net}" + (f"; DROP TABLE {netted.gone}" if netted.deletes else ""))


def _delete(con: Any, netted: Netted) -> None:
    """Delete all copies of the rows that are deleted."""
    [(expected,)] = con.execute(f"SELECT coalesce(sum(__held), 0) FROM {netted.gone}").fetchall()
    if expected:
        same = _same(netted.columns)
        [(deleted,)] = con.execute(f"DELETE FROM {netted.table} AS t USING {netted.gone} AS n WHERE {same}").fetchall()
        if deleted != expected:
            raise InternalError(f"{expected} rows of {netted.name} were to be deleted, DuckDB deleted {deleted}")


def table_columns(session: Session, name: str) -> tuple[QualifiedName, list[Column]]:
    """The ordinary table of this name and its columns that can be written. ProgrammingError if it is none."""
    from sqlfront.database.catalog import EngineCatalog
    from sqlfront.database.names import name_parts

    if is_reserved(name_parts(name)):
        raise reserved(name)
    catalog = EngineCatalog(session.database, session.duck)
    found = catalog.resolve(name_parts(name))
    if found is None:
        raise ProgrammingError(f"there is no table {name}", hint="CREATE TABLE or CREATE CHANGE TABLE first")
    if catalog.is_view(found) or catalog.view_sql(found):
        raise ProgrammingError(f"{name} is a view and cannot be changed", hint="change the tables that it reads")
    table = catalog.name(found)
    return table, [Column(*column) for column in written_columns(session.duck, session.database.name, table)]


def _given(
    session: Session, name: str, table: QualifiedName, columns: Sequence[Column], changes: Any
) -> tuple[pa.Table | pa.RecordBatch, list[Column], dict[str, str], np.ndarray | None]:
    """The rows of changes, the columns that these have, the DEFAULTs of the others, and the weights."""
    rows = as_arrow(name, changes)
    given = {column.casefold() for column in rows.schema.names}
    present = [column for column in columns if column.name.casefold() in given]
    defaults = _defaults(session, name, table, [column for column in columns if column not in present])
    rows, weights = read_changes(name, present, rows)
    return rows, present, defaults, weights


def _defaults(session: Session, name: str, table: QualifiedName, missing: Sequence[Column]) -> dict[str, str]:
    """The DEFAULT expressions of columns that the changes miss. ProgrammingError if one has none."""
    if not missing:
        return {}
    found = session.duck.execute(
        "SELECT column_name, column_default FROM duckdb_columns() WHERE database_name = ? "
        "AND schema_name = ? AND table_name = ? AND column_default IS NOT NULL",
        [session.database.name, table.schema, table.name],
    ).fetchall()
    defaults = dict(found)
    absent = [column.name for column in missing if column.name not in defaults]
    if absent:
        raise ProgrammingError(
            f"the changes of {name} miss column {', '.join(absent)}", why="it has no DEFAULT", hint="add the column"
        )
    return {column.name: defaults[column.name] for column in missing}


def _net(
    con: Any, netted: Netted, defaults: dict[str, str], rows: pa.Table | pa.RecordBatch, weights: np.ndarray | None
) -> None:
    """Make the temporary table of distinct rows and their net weights, in the table's types."""
    import duckdb
    import pyarrow as pa

    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    weights = np.ones(table.num_rows, np.int64) if weights is None else weights
    casts = ", ".join(f"{_value(c, defaults.get(c.name), table)} AS {quote(c.name)}" for c in netted.columns)
    names, groups = _names(netted.columns), _exact_names(netted.columns)
    con.register(_GIVEN, table.append_column("__weight", pa.array(weights)))
    try:
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {netted.net} AS SELECT {names}, sum(__weight)::BIGINT AS __weight FROM "
            f"(SELECT {casts}, __weight FROM {_GIVEN}) GROUP BY {groups} HAVING sum(__weight) <> 0"
        )
    except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
        raise _unfit(netted.name, error) from error
    con.unregister(_GIVEN)  # Not after an error: the transaction is aborted then, and takes the name along.


def _unfit(name: str, error: Exception) -> DataError:
    why, hint = str(error).splitlines()[0], "cast it first, or correct it"
    return DataError(f"a value does not fit its column of {name}", why=why, hint=hint)


def _value(column: Column, default: str | None, given: pa.Table) -> str:
    """The given value of a column, or its default, in the column's type."""
    if default:
        return f"CAST(({default}) AS {column.type})"
    return arrived_sql(column.name, column.type, given.schema.field(column.name).type)


def _check_deletes(con: Any, netted: Netted) -> None:
    """Count the copies of each row of net weight -n. By columns: DuckDB's joins on rowid lose rows."""
    names, groups = _names(netted.columns), _exact_names(netted.columns, "n.")
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE {netted.gone} AS SELECT n.*, count(t.__there) AS __held "
        f"FROM (FROM {netted.net} WHERE __weight < 0) AS n "
        f"LEFT JOIN (SELECT {names}, true AS __there FROM {netted.table}) AS t ON {_same(netted.columns)} "
        f"GROUP BY {groups}, n.__weight"
    )
    absent = con.execute(
        f"SELECT {names}, -__weight, __held FROM {netted.gone} WHERE __held + __weight < 0 ORDER BY ALL LIMIT 1"
    ).fetchall()
    if absent:
        *values, wanted, held = absent[0]
        row = ", ".join(f"{column.name} = {value!r}" for column, value in zip(netted.columns, values, strict=True))
        raise IntegrityError(
            f"a row of {netted.name} is deleted more often than it is there",
            where=f"the row with {row}",
            why=f"{wanted} to delete, {held} there",
            hint="check the changes of this epoch; nothing of it has been applied",
        )


def _same(columns: Sequence[Column]) -> str:
    """Rows are the same if they are written alike, whatever DuckDB takes for equal."""
    sides = ([exact(f"{table}.{quote(column.name)}", column.type) for table in "tn"] for column in columns)
    return " AND ".join(" IS NOT DISTINCT FROM ".join(pair) for pair in sides)


def _exact_names(columns: Sequence[Column], table: str = "") -> str:
    """The columns to group by, and what tells their values apart."""
    names = [f"{table}{quote(column.name)}" for column in columns]
    told = [exact(name, column.type) for name, column in zip(names, columns, strict=True)]
    return ", ".join(dict.fromkeys((*names, *told)))


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(quote(column.name) for column in columns)

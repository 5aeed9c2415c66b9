"""`con.apply` and `con.apply_row`: batches of changes as one epoch, on change tables and on ordinary ones.

On an ordinary table the netted changes are written to DuckDB, deletes before inserts, and come back
through its triggers if a view reads the table; -n deletes exactly n copies of a row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from maintenance.engine import Change
from maintenance.relation import Column
from sqlfront.changes import read_changes
from sqlfront.database import ChangeTable, lost
from sqlfront.dml import unit
from sqlfront.names import name_parts
from storage.capture import QualifiedName
from storage.capture_sql import quote
from storage.errors import DataError, IntegrityError, ProgrammingError

if TYPE_CHECKING:
    from maintenance.epoch import Epoch
    from sqlfront.connection import Connection


def apply(connection: Connection, changes: Mapping[str, Any]) -> Epoch | None:
    """Apply changes of several tables as one epoch; see Connection.apply."""
    database = connection._database
    if not isinstance(changes, Mapping):
        raise ProgrammingError("apply takes a mapping from table names to changes", hint="con.apply({'t': changes})")
    tables = {name: _change_table(connection, name) for name in changes}
    if connection._transaction is None and all(tables.values()):
        started = time.perf_counter()
        batch = {}
        for name, data in changes.items():
            table = tables[name]
            assert table is not None
            rows, weights = read_changes(name, table.columns, data, table.defaults)
            relation = database.relation_key(table.name)
            if relation in batch:
                raise ProgrammingError(f"two entries of the changes name table {table.name}", hint="join them")
            batch[relation] = Change(rows, weights)
            connection._gates[name] = relation
        with database.engine.lock:
            epoch = database.engine.commit(database.engine.apply(batch))
            for relation in batch:
                database.engine.relations[relation].passed = True
            epoch.seconds = time.perf_counter() - started
            return epoch
    with unit(connection) as transaction:
        for name, data in changes.items():
            table = tables[name]
            if table is not None:
                rows, weights = read_changes(name, table.columns, data, table.defaults)
                transaction.add(table, rows, weights)
            else:
                _write_through(connection, name, data)
    return transaction.epoch


def apply_row(connection: Connection, name: str, row: Sequence[Any], weight: int) -> int | None:
    """Apply one row; see Connection.apply_row. Opens the short way for change tables."""
    database = connection._database
    if not isinstance(weight, int) or isinstance(weight, bool):
        raise DataError(f"a weight of {weight!r}", hint="give a whole number")
    table = _change_table(connection, name)
    if table is not None and connection._transaction is None:
        relation = database.relation_key(table.name)
        connection._gates[name] = relation
        return database.engine.apply_row(relation, row, weight)
    import pyarrow as pa

    columns = table.columns if table is not None else _columns(connection, name)[1]
    if len(row) != len(columns):
        raise DataError(f"{name} has {len(columns)} columns, the row has {len(row)} values")
    cast = database.engine.dictionaries.caster.cast_value
    data = {column.name: cast(value, column.type) for column, value in zip(columns, row, strict=True)}
    epoch = apply(connection, {name: pa.table({**data, "_weight": pa.array([weight], pa.int64())})})
    return epoch.number if epoch is not None else None


def _change_table(connection: Connection, name: str) -> ChangeTable | None:
    table = connection._database.change_table(connection._duck, name_parts(name))
    if table is not None and table.lost is not None:
        raise lost(f"change table {table.name}", table)
    return table


def _columns(connection: Connection, name: str) -> tuple[QualifiedName, list[Column]]:
    from sqlfront.catalog import EngineCatalog

    catalog = EngineCatalog(connection._database, connection._duck)
    found = catalog.resolve(name_parts(name))
    if found is None:
        raise ProgrammingError(f"there is no table {name}", hint="CREATE TABLE or CREATE CHANGE TABLE first")
    if catalog.is_view(found) or catalog.view_sql(found):
        raise ProgrammingError(f"{name} is a view and cannot be changed", hint="change the tables that it reads")
    return catalog.name(found), [Column(*column) for column in catalog.columns(found) or []]


def _write_through(connection: Connection, name: str, data: Any) -> None:
    """Write netted changes to an ordinary table in the open transaction."""
    con = connection._duck
    table, columns = _columns(connection, name)
    given = {column.casefold() for column in data.schema.names} if hasattr(data, "schema") else None
    present = [c for c in columns if given is None or c.name.casefold() in given] if given else columns
    _require_defaults(con, name, table, [c for c in columns if c not in present])
    rows, weights = read_changes(name, [Column(c.name, c.type) for c in present], data)
    names = ", ".join(quote(c.name) for c in present)
    casts = ", ".join(f"CAST({quote(c.name)} AS {c.type}) AS {quote(c.name)}" for c in present)
    import pyarrow as pa

    weighted = pa.table(rows) if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    weights = np.ones(weighted.num_rows, np.int64) if weights is None else weights
    con.register("__sqlfront_changes", weighted.append_column("__weight", pa.array(weights)))
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE __sqlfront_net AS SELECT {names}, sum(__weight)::BIGINT AS __weight FROM "
        f"(SELECT {casts}, __weight FROM __sqlfront_changes) GROUP BY {names} HAVING sum(__weight) <> 0"
    )
    con.unregister("__sqlfront_changes")
    _delete_copies(con, name, table, present)
    con.execute(
        f"INSERT INTO {table} ({names}) SELECT {names} FROM "
        "(SELECT *, unnest(range(__weight)) FROM temp.__sqlfront_net WHERE __weight > 0)"
    )
    con.execute("DROP TABLE temp.__sqlfront_net")


def _delete_copies(con: Any, name: str, table: QualifiedName, columns: list[Column]) -> None:
    [(wanted,)] = con.execute("SELECT coalesce(-sum(__weight), 0) FROM temp.__sqlfront_net WHERE __weight < 0").fetchall()
    if not wanted:
        return
    same = " AND ".join(f"t.{quote(c.name)} IS NOT DISTINCT FROM n.{quote(c.name)}" for c in columns)
    keys = ", ".join(f"n.{quote(c.name)}" for c in columns)
    con.execute(
        f"DELETE FROM {table} WHERE rowid IN (SELECT r FROM (SELECT t.rowid AS r, n.__weight AS w, "
        f"row_number() OVER (PARTITION BY {keys}) AS k FROM {table} t JOIN temp.__sqlfront_net n ON {same} "
        "WHERE n.__weight < 0) WHERE k <= -w)"
    )
    [(deleted,)] = con.fetchall()
    if deleted != wanted:
        absent = con.execute(
            f"SELECT n.* FROM temp.__sqlfront_net n WHERE n.__weight < 0 AND "
            f"NOT EXISTS (SELECT 1 FROM {table} t WHERE {same}) LIMIT 1"
        ).fetchall()
        raise IntegrityError(
            f"a row of {name} is deleted more often than it is there",
            where=f"the row {absent[0][:-1]}" if absent else None,
            why="-n deletes exactly n copies of a row",
            hint="check the changes of this epoch; nothing of it has been applied",
        )


def _require_defaults(con: Any, name: str, table: QualifiedName, missing: list[Column]) -> None:
    if not missing:
        return
    rows = con.execute(
        "SELECT lower(column_name) FROM duckdb_columns() WHERE database_name = current_database() "
        "AND schema_name = ? AND table_name = ? AND column_default IS NOT NULL",
        [table.schema, table.name],
    ).fetchall()
    with_default = {row[0] for row in rows}
    absent = [c.name for c in missing if c.name.lower() not in with_default]
    if absent:
        raise ProgrammingError(
            f"the changes of {name} miss column {', '.join(absent)}", why="it has no DEFAULT", hint="add the column"
        )

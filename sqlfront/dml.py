"""INSERT, UPDATE, DELETE, MERGE, TRUNCATE and COPY FROM on tables that views read, and on change tables.

An ordinary table is written by DuckDB itself while triggers capture what changes. A change table has
no rows in DuckDB: the statement runs on a temporary table of the same columns, and what changed there
is what changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.database import ChangeTable, lost
from sqlfront.failures import expect_copy
from sqlfront.frames import as_user, user_object
from sqlfront.loading import lossless
from sqlfront.names import captured_table, locate
from sqlfront.reach import reads_ours
from sqlfront.statements import PassThrough
from sqlfront.transactions import Transaction, rollback
from storage.capture_sql import quote
from storage.errors import NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.connection import Connection

_STAGE, _BEFORE = "__sqlfront_stage", "__sqlfront_before"


def needs_us(connection: Connection, statement: PassThrough) -> bool:
    """Whether a write concerns a captured table, a change table, or a view (which cannot be written)."""
    database = connection._database
    for target in statement.targets:
        key = locate(database, connection._duck, target.parts)
        if key in database.views or key in database.unbuilt:
            raise ProgrammingError(
                f"{'.'.join(target.parts)} is a materialized view and cannot be written",
                hint="change the tables that it reads; it follows",
            )
        if key in database.change_tables and database.read_only:
            raise ProgrammingError(
                f"change table {'.'.join(target.parts)} cannot be written",
                why=f"{database.path} is open read-only",
                hint="connect without access_mode = 'READ_ONLY'",
            )
        if key is not None:
            return True
    return False


def check_prepared(connection: Connection, statement: PassThrough) -> None:
    """Refuse PREPARE of a write that DuckDB cannot run by itself. Triggers capture the others when they run."""
    if not needs_us(connection, statement):
        return
    target = ".".join(statement.targets[0].parts)
    hint = "execute the statement itself, with parameters: con.execute(sql, params), or executemany"
    if connection._database.change_table(connection._duck, statement.targets[0].parts) is not None:
        why = "change tables are kept by the engine, which DuckDB's prepared statements do not reach"
        raise NotSupportedError(f"PREPARE of a write to change table {target} is not supported", why=why, hint=hint)
    if statement.upsert:
        why = "materialized views read the table, and DuckDB's triggers do not see the changes of an upsert"
        raise NotSupportedError(f"PREPARE of an upsert into {target} is not supported", why=why, hint=hint)


def write(connection: Connection, statement: PassThrough, params: Any, many: bool) -> None:
    """Run a write and, in autocommit, commit it as one epoch; its result is left on the connection."""
    from sqlfront.dispatch import set_result

    database = connection._database
    change_table = database.change_table(connection._duck, statement.targets[0].parts)
    with unit(connection) as transaction:
        connection._session = database.session()
        if change_table is not None:
            result = _write_change_table(connection, transaction, change_table, statement, params, many)
        else:
            result = _write_table(connection, statement, params, many)
    set_result(connection, result)


@contextmanager
def unit(connection: Connection) -> Iterator[Transaction]:
    """The open transaction, or one for this statement alone that is committed at the end."""
    if connection._transaction is not None:
        connection._transaction.touch()
        yield connection._transaction
        return
    connection._duck.execute("BEGIN")
    transaction = Transaction(connection._database, connection._duck)
    connection._transaction = transaction
    try:
        yield transaction
    except BaseException:
        connection._transaction = None
        rollback(connection._duck)
        raise
    connection._transaction = None
    transaction.commit()


def _write_table(connection: Connection, statement: PassThrough, params: Any, many: bool) -> Any:
    database, con = connection._database, connection._duck
    if statement.kind == "merge" or statement.upsert:
        name = captured_table(database, locate(database, con, statement.targets[0].parts))
        with _reading_own(connection, statement), _user_objects(con, statement):
            return database.capture.run_upsert_or_merge(
                con, name, statement.text, params, in_transaction=True, many=many
            )
    with _reading_own(connection, statement):
        return _run(con, statement.text, params, many)


@contextmanager
def _user_objects(con: Any, statement: PassThrough) -> Iterator[None]:
    """Register the Python objects that a statement names, where it is not run from the user's frame."""
    names = {reference.parts[0] for reference in statement.references or () if len(reference.parts) == 1}
    known = con.execute(
        "SELECT lower(table_name) FROM duckdb_tables() UNION ALL SELECT lower(view_name) FROM duckdb_views()"
    ).fetchall()
    objects = {name: user_object(name) for name in names if (name.lower(),) not in known}
    objects = {name: value for name, value in objects.items() if hasattr(value, "__arrow_c_stream__")}
    for name, value in objects.items():
        con.register(name, value)
    try:
        yield
    finally:
        for name in objects:
            con.unregister(name)


def _run(con: Any, text: str, params: Any, many: bool) -> Any:
    """Run a write in DuckDB; its result as an Arrow table that keeps every type."""
    with lossless(con):
        if not many:
            return as_user(partial(con.sql, text, params=params)).to_arrow_table()
        as_user(partial(con.executemany, text, params))
        expect_copy()
        return con.to_arrow_table()


@contextmanager
def _reading_own(connection: Connection, statement: PassThrough | None = None) -> Iterator[None]:
    """Run a write; if it may read views, under the engine's lock: one epoch, with the transaction's changes in it."""
    database = connection._database
    transaction = connection._transaction
    assert transaction is not None
    if statement is not None and not reads_ours(connection, statement):
        yield
        return
    with database.engine.lock, transaction.applied():
        connection._session = database.session()
        with connection._session.holding():
            yield


def _write_change_table(
    connection: Connection,
    transaction: Transaction,
    table: ChangeTable,
    statement: PassThrough,
    params: Any,
    many: bool,
) -> Any:
    con = connection._duck
    if statement.kind == "truncate" and table.lost is not None:
        transaction.truncated(table)
        return _count(0)
    if table.lost is not None:
        raise lost(f"change table {table.name}", table)
    if statement.returning:
        raise NotSupportedError(f"RETURNING on change table {table.name} is not supported", hint="leave it out")
    plain_insert = statement.kind in ("insert", "copy_from") and not statement.upsert
    if not plain_insert and not table.retain:
        raise ProgrammingError(
            f"{statement.kind.upper()} on change table {table.name}",
            why="it was created WITH (retain = false): its rows are not kept, so only INSERT works",
            hint="give exact changes with con.apply and _weight, or create it WITH (retain = true)",
        )
    with _reading_own(connection):
        columns = ", ".join(_declaration(table, column) for column in table.columns)
        con.execute(f"CREATE OR REPLACE TEMP TABLE {_STAGE} ({columns})")
        if not plain_insert:
            con.execute(f"INSERT INTO {_STAGE} SELECT * FROM {table.name}")
            con.execute(f"CREATE OR REPLACE TEMP TABLE {_BEFORE} AS SELECT * FROM {_STAGE}")
        target = statement.targets[0]
        text = f"{statement.text[: target.start]}temp.{_STAGE}{statement.text[target.end :]}"
        if not plain_insert and statement.kind in ("update", "delete"):
            text = _with_alias(statement, target.end, text, table)
        result = _run(con, text, params, many)
        rows, weights = _staged(con, table, plain_insert)
        con.execute(f"DROP TABLE temp.{_STAGE}; DROP TABLE IF EXISTS temp.{_BEFORE}")
    if rows.num_rows:
        transaction.add(table, rows, weights)
    return result


def _with_alias(statement: PassThrough, end: int, text: str, table: ChangeTable) -> str:
    """Let the statement go on calling the table by its name."""
    following = statement.text[end:].split(None, 2)
    aliased = len(following) > 0 and following[0].lower() not in ("set", "where", "using", "returning")
    place = text.index(f"temp.{_STAGE}") + len(f"temp.{_STAGE}")
    return text if aliased else f"{text[:place]} AS {quote(table.name.name)}{text[place:]}"


def _staged(con: Any, table: ChangeTable, plain_insert: bool) -> tuple[Any, np.ndarray]:
    """What the statement changed on the temporary table, as rows and weights."""
    with lossless(con):
        if plain_insert:
            rows = con.sql(f"FROM temp.{_STAGE}").to_arrow_table()
            return rows, np.ones(rows.num_rows, np.int64)
        rows = con.sql(
            f"SELECT *, -1 AS __weight FROM (FROM temp.{_BEFORE} EXCEPT ALL FROM temp.{_STAGE}) UNION ALL "
            f"SELECT *, 1 FROM (FROM temp.{_STAGE} EXCEPT ALL FROM temp.{_BEFORE})"
        ).to_arrow_table()
    weights = rows.column("__weight").to_numpy().astype(np.int64)
    return rows.drop_columns(["__weight"]), weights


def _declaration(table: ChangeTable, column: Any) -> str:
    default = table.defaults.get(column.name)
    text = f"{quote(column.name)} {column.type}"
    text += f" DEFAULT {default}" if default is not None else ""
    return text + (" NOT NULL" if column.not_null else "")


def _count(rows: int) -> Any:
    import pyarrow as pa

    return pa.table({"Count": pa.array([rows], pa.int64())})

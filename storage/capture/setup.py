"""Making and removing what captures one table: the delta table, the triggers, the bookkeeping row.

Functions over a connection; the caller wraps them in a transaction and keeps the memory of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlfront.storage.capture.all_or_nothing import unit
from sqlfront.storage.capture.trigger_sql import (
    BOOKKEEPING,
    SCHEMA,
    UNTOLD,
    WEIGHT,
    Captured,
    QualifiedName,
    bookkeeping_sql,
    delta_ddl,
    delta_sql,
    drop_triggers_ddl,
    schema_ddl,
    trigger_ddl,
    triggers_query,
)
from sqlfront.storage.errors import NotSupportedError, OperationalError, ProgrammingError
from sqlfront.storage.sql_text import literal


def resolve(con: Any, database: str, table: QualifiedName, needed: Collection[str]) -> list[str]:
    """The columns as the catalog spells them, in table order. Raises if the table or a column cannot be captured."""
    if table.schema.casefold() == SCHEMA:
        raise NotSupportedError(f"schema {SCHEMA} is reserved", where=f"table {table}")
    known, _ = columns(con, database, table)
    if not con.execute(f"SELECT 1 FROM duckdb_tables() WHERE {_is(database, table)} AND NOT internal").fetchall():
        raise ProgrammingError(
            "no such table to capture",
            where=f"table {table} of database {database}",
            why="changes are captured on base tables only, not on views, temporary tables or other databases",
        )
    wanted = {name.casefold() for name in needed}
    for name in sorted(wanted - {name.casefold() for name in known}):
        raise ProgrammingError(f"no column {name}", where=f"table {table}")
    if WEIGHT in wanted:
        raise NotSupportedError(
            f"a column named {WEIGHT} cannot be captured",
            where=f"table {table}",
            why="the changes carry their multiplicity under this name",
            hint="rename the column",
        )
    return [name for name in known if name.casefold() in wanted]


def columns(con: Any, database: str, table: QualifiedName) -> tuple[dict[str, str], frozenset[str]]:
    """Name to type of the columns of a table or view, in order, and the names of the generated ones."""
    rows = con.execute(
        f"SELECT column_name, data_type, is_generated FROM duckdb_columns() WHERE {_is(database, table)} "
        "ORDER BY column_index"
    ).fetchall()
    return {name: kind for name, kind, _ in rows}, frozenset(name for name, _, generated in rows if generated)


def unique_keys(con: Any, database: str, table: QualifiedName) -> tuple[tuple[str, ...], ...]:
    """The PRIMARY KEY and UNIQUE constraints, in lower case; none if a unique index is a key besides."""
    constraint = "constraint_type IN ('PRIMARY KEY', 'UNIQUE')"
    rows = con.execute(
        f"SELECT constraint_column_names FROM duckdb_constraints() WHERE {_is(database, table)} AND {constraint} "
        f"UNION ALL SELECT NULL FROM duckdb_indexes() WHERE {_is(database, table)} AND is_unique"
    ).fetchall()
    keys = [key for (key,) in rows]
    return () if None in keys else tuple(tuple(name.casefold() for name in key) for key in keys)


def _is(database: str, table: QualifiedName) -> str:
    return (
        f"database_name = {literal(database)} AND schema_name = {literal(table.schema)} "
        f"AND table_name = {literal(table.name)}"
    )


def make(con: Any, database: str, table: QualifiedName, names: Collection[str]) -> tuple[Captured, list[int]]:
    """Create the delta table and the triggers and book them; the capture and the oids of its triggers."""
    for statement in schema_ddl(database):
        con.execute(statement)
    [(number,)] = con.execute(f"SELECT coalesce(max(number), 0) + 1 FROM {bookkeeping_sql(database)}").fetchall()
    captured = Captured(table, number, tuple(names))
    con.execute(delta_ddl(database, captured)).fetchall()
    oids = create_triggers(con, database, captured)
    book(con, database, captured)
    return captured, oids


def create_triggers(con: Any, database: str, captured: Captured) -> list[int]:
    """Create the three triggers; their oids."""
    con.execute(";".join(trigger_ddl(database, captured, named_for(con, database))))
    return [oid for _, oid, _ in con.execute(triggers_query(database, captured.table)).fetchall()]


def named_for(con: Any, database: str) -> str:
    """The database that trigger bodies name: none in a file, whose name may change; in memory the name is for good."""
    query = f"SELECT path IS NULL OR path = '' FROM duckdb_databases() WHERE database_name = {literal(database)}"
    [(in_memory,)] = con.execute(query).fetchall()
    return database if in_memory else ""


def renew_triggers(con: Any, database: str, captured: Captured) -> list[int]:
    """Make intact triggers anew if their bodies name a database that they need not, or know nothing of writes that tell
    their changes themselves; the oids.

    Where that database was not to be found, every write of the table has failed: none has gone unseen.
    """
    query = f"SELECT database_name, triggers FROM {bookkeeping_sql(database)} WHERE number = {captured.number}"
    [(named, bodies)] = con.execute(query).fetchall()
    if named != named_for(con, database) or not all(f"({UNTOLD})" in body for body in bodies):
        with unit(con, False):
            drop_triggers(con, database, captured.table)
            create_triggers(con, database, captured)
            book(con, database, captured)
    return [oid for _, oid, _ in con.execute(triggers_query(database, captured.table)).fetchall()]


def drop_triggers(con: Any, database: str, table: QualifiedName) -> None:
    """Drop those of the three triggers that exist."""
    names = [name for name, _, _ in con.execute(triggers_query(database, table)).fetchall()]
    con.execute(";".join(drop_triggers_ddl(database, table, names)))


def book(con: Any, database: str, captured: Captured) -> None:
    """Write the bookkeeping row anew, with the definitions of the triggers as DuckDB prints them."""
    definitions = [sql for _, _, sql in con.execute(triggers_query(database, captured.table)).fetchall()]
    con.execute(f"DELETE FROM {bookkeeping_sql(database)} WHERE number = {captured.number}").fetchall()
    con.execute(
        f"INSERT INTO {bookkeeping_sql(database)} VALUES (?, ?, ?, ?, ?, ?)",
        [
            captured.number,
            named_for(con, database),
            captured.table.schema,
            captured.table.name,
            list(captured.columns),
            definitions,
        ],
    ).fetchall()


def remove(con: Any, database: str, table: QualifiedName, *, keep_changes: bool) -> None:
    """Drop triggers, delta table and bookkeeping row of a table, as far as they exist.

    keep_changes: raise OperationalError instead when the delta table holds unconsumed changes.
    """
    drop_triggers(con, database, table)
    for captured in booked(con, database):
        if captured.table.key == table.key:
            delta = delta_sql(database, captured)
            if keep_changes and con.execute(f"SELECT 1 FROM {delta} LIMIT 1").fetchall():
                raise OperationalError(
                    "the capture cannot be widened now",
                    where=f"table {table}",
                    why="it holds changes without the new columns that no one has read yet",
                    hint="read the views over the table, then run the statement again",
                )
            con.execute(f"DROP TABLE IF EXISTS {delta}")
            con.execute(f"DELETE FROM {bookkeeping_sql(database)} WHERE number = {captured.number}").fetchall()


def booked(con: Any, database: str) -> list[Captured]:
    """What the bookkeeping table lists; nothing if there is none."""
    there = (
        f"SELECT 1 FROM duckdb_tables() WHERE database_name = {literal(database)} "
        f"AND schema_name = {literal(SCHEMA)} AND table_name = {literal(BOOKKEEPING)}"
    )
    if not con.execute(there).fetchall():
        return []
    query = f"SELECT number, schema_name, table_name, columns FROM {bookkeeping_sql(database)} ORDER BY number"
    return [Captured(QualifiedName(s, t), n, tuple(names)) for n, s, t, names in con.execute(query).fetchall()]


def intact(con: Any, database: str, captured: Captured) -> list[int]:
    """The oids of the triggers if they and the column types are as installed (by an earlier process), else none."""
    query = f"SELECT triggers FROM {bookkeeping_sql(database)} WHERE number = {captured.number}"
    [(definitions,)] = con.execute(query).fetchall()
    found = con.execute(triggers_query(database, captured.table)).fetchall()
    types, _ = columns(con, database, captured.table)
    delta, _ = columns(con, database, QualifiedName(SCHEMA, f"delta_{captured.number}"))
    same = [types.get(name) for name in captured.columns] == list(delta.values())[2:]
    return [oid for _, oid, _ in found] if same and [sql for _, _, sql in found] == definitions else []

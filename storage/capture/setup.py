"""Making and removing what captures tables: delta tables, triggers, bookkeeping rows.

Functions over a connection; the caller wraps them in a transaction and keeps the memory of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlfront.storage.capture.all_or_nothing import unit
from sqlfront.storage.capture.prepared import ask
from sqlfront.storage.capture.trigger_sql import (
    BOOKKEEPING,
    SCHEMA,
    UNTOLD,
    WEIGHT,
    Captured,
    QualifiedName,
    booked_query,
    bookkeeping_sql,
    delta_ddl,
    delta_name,
    delta_sql,
    drop_triggers_ddl,
    schema_ddl,
    trigger_ddl,
    triggers_query,
)
from sqlfront.storage.errors import NotSupportedError, OperationalError, ProgrammingError
from sqlfront.storage.sql_text import literal


@dataclass(frozen=True)
class Trigger:
    """One of the three triggers of a table, with its definition as DuckDB prints it."""

    name: str
    oid: int
    sql: str


def resolve(con: Any, database: str, tables: Mapping[QualifiedName, Collection[str]]) -> dict[QualifiedName, list[str]]:
    """The columns of each table as the catalog spells them, in table order; one query. Raises if a table or a column
    cannot be captured."""
    for table in tables:
        if table.schema.casefold() == SCHEMA:
            raise NotSupportedError(f"schema {SCHEMA} is reserved", where=f"table {table}")
    # Two plain lists cost half of a join. A table's own row, of place 0, tells that it is no view.
    query = (
        "SELECT schema_name, table_name, column_name, column_index FROM duckdb_columns() "
        f"WHERE {_among(database, tables)} UNION ALL SELECT schema_name, table_name, '', 0 FROM duckdb_tables() "
        f"WHERE {_among(database, tables)} AND NOT internal"
    )
    found: dict[QualifiedName, dict[int, str]] = {table: {} for table in tables}
    for schema, name, column, place in con.execute(query).fetchall():
        if (table := QualifiedName(schema, name)) in found:
            found[table][place] = column
    known = {table: [named[place] for place in sorted(named) if place] for table, named in found.items() if 0 in named}
    return {table: _resolved(database, table, known.get(table, []), needed) for table, needed in tables.items()}


def _resolved(database: str, table: QualifiedName, known: Sequence[str], needed: Collection[str]) -> list[str]:
    if not known:
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
        "ORDER BY column_index ASC"
    ).fetchall()
    return {name: kind for name, kind, _ in rows}, frozenset(name for name, _, generated in rows if generated)


def written_columns(con: Any, database: str, table: QualifiedName) -> list[tuple[str, str, bool]]:
    """Name, type and whether it is NOT NULL of the columns of a table that can be written, in order."""
    query = (
        f"SELECT column_name, data_type, NOT is_nullable FROM duckdb_columns() WHERE {_is(database, table)} "
        "AND NOT is_generated ORDER BY column_index ASC"
    )
    return [(name, kind, bool(not_null)) for name, kind, not_null in ask(con, query)]


def unique_keys(con: Any, database: str, table: QualifiedName) -> tuple[tuple[str, ...], ...]:
    """The PRIMARY KEY and UNIQUE constraints, in lower case; none if a unique index is a key besides."""
    keys, _, others = constraints(con, database, table)
    return () if "UNIQUE INDEX" in others else keys


def constraints(
    con: Any, database: str, table: QualifiedName
) -> tuple[tuple[tuple[str, ...], ...], frozenset[str], frozenset[str]]:
    """The PRIMARY KEY and UNIQUE constraints, the columns that are NOT NULL, in lower case, and the kinds of all other
    constraints: CHECK, FOREIGN KEY, UNIQUE INDEX."""
    rows = con.execute(
        f"SELECT constraint_type, constraint_column_names FROM duckdb_constraints() WHERE {_is(database, table)} "
        f"UNION ALL SELECT 'UNIQUE INDEX', [] FROM duckdb_indexes() WHERE {_is(database, table)} AND is_unique"
    ).fetchall()
    found = [(kind, tuple(name.casefold() for name in names)) for kind, names in rows]
    keys = tuple(names for kind, names in found if kind in ("PRIMARY KEY", "UNIQUE"))
    not_null = frozenset(name for kind, names in found if kind == "NOT NULL" for name in names)
    return keys, not_null, frozenset(kind for kind, _ in found) - {"PRIMARY KEY", "UNIQUE", "NOT NULL"}


def _is(database: str, table: QualifiedName) -> str:
    return (
        f"database_name = {literal(database)} AND schema_name = {literal(table.schema)} "
        f"AND table_name = {literal(table.name)}"
    )


def _among(database: str, tables: Iterable[QualifiedName]) -> str:
    """Whether a row is of one of the tables, or of one of that name in another schema: DuckDB compares pairs slowly."""
    names = ", ".join(sorted({literal(table.name) for table in tables}))
    return f"database_name = {literal(database)} AND table_name IN ({names})"


def make(
    con: Any, database: str, names: Mapping[QualifiedName, Collection[str]], *, kept: Collection[tuple[str, str]] = ()
) -> dict[Captured, list[int]]:
    """Create delta tables and triggers for the columns of tables, in the place of those that are there, and book them;
    the captures and the oids of their triggers.

    kept: keys of tables whose unconsumed changes must not be lost: OperationalError if a delta table of theirs has any.
    """
    drops = (drop for table in names for drop in drop_triggers_ddl(database, table, if_exists=True))
    there = _captures(con.execute(";".join([*schema_ddl(database), *drops, booked_query(database)])).fetchall())
    others = _take_out(con, database, names, there, kept)
    first = max((captured.number for captured in others), default=0) + 1
    made = [Captured(table, number, tuple(columns)) for number, (table, columns) in enumerate(names.items(), first)]
    named = named_for(con, database)
    con.execute(";".join(delta_ddl(database, captured) for captured in made))
    found = create_triggers(con, database, named, made)
    book(con, database, named, found)
    return {captured: oids_of(there) for captured, there in found.items()}


def create_triggers(con: Any, database: str, named: str, captures: Sequence[Captured]) -> dict[Captured, list[Trigger]]:
    """Create the three triggers of each table, whose bodies name the database `named_for`."""
    made = [statement for captured in captures for statement in trigger_ddl(database, captured, named)]
    found = triggers(con, database, [captured.table for captured in captures], after=made)
    return {captured: found[captured.table] for captured in captures}


def oids_of(there: Iterable[Trigger]) -> list[int]:
    """The oids of triggers, in order."""
    return [trigger.oid for trigger in there]


def named_for(con: Any, database: str) -> str:
    """The database that trigger bodies name: none in a file, whose name may change; in memory the name is for good."""
    query = f"SELECT path IS NULL OR path = '' FROM duckdb_databases() WHERE database_name = {literal(database)}"
    [(in_memory,)] = con.execute(query).fetchall()
    return database if in_memory else ""


def renew_triggers(
    con: Any, database: str, captures: Mapping[Captured, Sequence[Trigger]]
) -> dict[Captured, Sequence[Trigger]]:
    """Make intact triggers anew if their bodies name a database that they need not, or know nothing of writes that tell
    their changes themselves; the present triggers of each table.

    Where that database was not to be found, every write of the table has failed: none has gone unseen.
    """
    named = named_for(con, database)
    query = f"SELECT number, database_name, triggers FROM {bookkeeping_sql(database)}"
    current = {
        number
        for number, name, bodies in con.execute(query).fetchall()
        if name == named and all(f"({UNTOLD})" in body for body in bodies)
    }
    old = [captured for captured in captures if captured.number not in current]
    if not old:
        return dict(captures)
    with unit(con, False):
        drop_triggers(con, database, [captured.table for captured in old])
        found = create_triggers(con, database, named, old)
        unbook(con, database, old)
        book(con, database, named, found)
    return {**captures, **found}


def triggers(
    con: Any, database: str, tables: Sequence[QualifiedName], *, after: Sequence[str] = ()
) -> dict[QualifiedName, list[Trigger]]:
    """Those of the three triggers that each table has, by name, once the statements `after` have run; one query."""
    found: dict[QualifiedName, list[Trigger]] = {table: [] for table in tables}
    for schema, table, *trigger in con.execute(";".join([*after, triggers_query(database)])).fetchall():
        if (place := QualifiedName(schema, table)) in found:
            found[place].append(Trigger(*trigger))
    return {table: sorted(there, key=lambda trigger: trigger.name) for table, there in found.items()}


def drop_triggers(con: Any, database: str, tables: Sequence[QualifiedName]) -> None:
    """Drop those of the three triggers that exist, of tables that may not be there."""
    there = triggers(con, database, tables)
    if any(there.values()):
        drops = (drop_triggers_ddl(database, table, [one.name for one in found]) for table, found in there.items())
        con.execute(";".join(statement for drop in drops for statement in drop))


def book(con: Any, database: str, named: str, captures: Mapping[Captured, Sequence[Trigger]]) -> None:
    """Write the bookkeeping rows of captures, with the definitions of their triggers and the database these name."""
    values = [
        value
        for captured, there in captures.items()
        for value in (
            captured.number,
            named,
            captured.table.schema,
            captured.table.name,
            list(captured.columns),
            [trigger.sql for trigger in there],
        )
    ]
    rows = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(captures))
    con.execute(f"INSERT INTO {bookkeeping_sql(database)} VALUES {rows}", values).fetchall()


def unbook(con: Any, database: str, captures: Sequence[Captured]) -> None:
    """Delete the bookkeeping rows."""
    if captures:
        numbers = ", ".join(str(captured.number) for captured in captures)
        con.execute(f"DELETE FROM {bookkeeping_sql(database)} WHERE number IN ({numbers})").fetchall()


def remove(con: Any, database: str, tables: Sequence[QualifiedName]) -> None:
    """Drop triggers, delta tables and bookkeeping rows of tables, as far as they exist."""
    drop_triggers(con, database, tables)
    _take_out(con, database, tables, booked(con, database))


def _take_out(
    con: Any,
    database: str,
    tables: Iterable[QualifiedName],
    there: Sequence[Captured],
    kept: Collection[tuple[str, str]] = (),
) -> list[Captured]:
    """Drop delta tables and bookkeeping rows of tables, as far as they are `there`; what is there besides. `kept` is as
    for `make`."""
    keys = {table.key for table in tables}
    gone = [captured for captured in there if captured.table.key in keys]
    for captured in gone:
        delta = delta_sql(database, captured)
        if captured.table.key in kept and con.execute(f"SELECT 1 FROM {delta} LIMIT 1").fetchall():
            raise OperationalError(
                "the capture cannot be widened now",
                where=f"table {captured.table}",
                why="it holds changes without the new columns that no one has read yet",
                hint="read the views over the table, then run the statement again",
            )
        con.execute(f"DROP TABLE IF EXISTS {delta}")
    unbook(con, database, gone)
    return [captured for captured in there if captured.table.key not in keys]


def booked(con: Any, database: str) -> list[Captured]:
    """What the bookkeeping table lists; nothing if there is none."""
    there = (
        f"SELECT 1 FROM duckdb_tables() WHERE database_name = {literal(database)} "
        f"AND schema_name = {literal(SCHEMA)} AND table_name = {literal(BOOKKEEPING)}"
    )
    if not con.execute(there).fetchall():
        return []
    return _captures(con.execute(booked_query(database)).fetchall())


def _captures(rows: Iterable[tuple[Any, ...]]) -> list[Captured]:
    """The rows of `booked_query`, by number."""
    return [Captured(QualifiedName(s, t), n, tuple(names)) for n, s, t, names in sorted(rows)]


def intact(con: Any, database: str, captures: Sequence[Captured]) -> dict[Captured, list[Trigger]]:
    """The triggers of each table if they and the column types are as installed (by an earlier process), else none.

    Three queries.
    """
    if not captures:
        return {}
    query = f"SELECT number, triggers FROM {bookkeeping_sql(database)}"
    definitions = dict(con.execute(query).fetchall())
    deltas = {captured: QualifiedName(SCHEMA, delta_name(captured)) for captured in captures}
    there = triggers(con, database, [captured.table for captured in captures])
    types = _types(con, database, [*there, *deltas.values()])
    found = {}
    for captured, delta in deltas.items():
        own = there[captured.table]
        same = [types[captured.table].get(name) for name in captured.columns] == list(types[delta].values())[2:]
        said = [_unnamed(one.sql) for one in own] == [_unnamed(sql) for sql in definitions[captured.number]]
        found[captured] = own if same and said else []
    return found


def _types(con: Any, database: str, tables: Sequence[QualifiedName]) -> dict[QualifiedName, dict[str, str]]:
    """Name to type of the columns of each table, in order."""
    found: dict[QualifiedName, dict[str, str]] = {table: {} for table in tables}
    query = (
        "SELECT schema_name, table_name, column_index, column_name, data_type FROM duckdb_columns() "
        f"WHERE {_among(database, tables)}"
    )
    for schema, table, _, name, kind in sorted(con.execute(query).fetchall()):
        if (place := QualifiedName(schema, table)) in found:
            found[place][name] = kind
    return found


def _unnamed(definition: str) -> str:
    """The definition of a trigger without its table. When DuckDB replays its log, it puts the present name of the file
    before the table's."""
    return re.sub(r" ON .*? REFERENCING ", " ON REFERENCING ", definition, count=1)

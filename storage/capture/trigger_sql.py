"""The SQL text of change capture: names, delta tables, triggers and the queries over them.

Pure functions: nothing here touches a database. A captured table `t` has one delta table
`__sqlfront.delta_<n>(w TINYINT, tx BIGINT, c0, c1, ...)`: the signed multiplicity, the transaction
that made the change, and the needed columns by position, so that no user name can clash with ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlfront.storage.codecs.transport import carried_sql
from sqlfront.storage.sql_text import literal, quote

SCHEMA = "__sqlfront"
BOOKKEEPING = "captures"
WEIGHT = "_weight"
NEVER = -1  # a transaction id that DuckDB never hands out: changes left by an earlier process
OWN = "__sqlfront_own"
"""The variable that is set in a session whose writes the triggers pass over: it tells its changes itself."""
UNTOLD = f"getvariable('{OWN}') IS NULL"


@dataclass(frozen=True, order=True)
class QualifiedName:
    """A table of the captured database, spelled as the catalog spells it."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def key(self) -> tuple[str, str]:
        """What two names of one table share: DuckDB compares identifiers without case."""
        return self.schema.casefold(), self.name.casefold()


@dataclass(frozen=True)
class Captured:
    """One captured table: its name, the number of its delta table and the columns it captures."""

    table: QualifiedName
    number: int
    columns: tuple[str, ...]


def table_sql(database: str, table: QualifiedName) -> str:
    """The table, with its database: it must resolve whatever the USE of the connection says."""
    return f"{quote(database)}.{table}"


def delta_name(captured: Captured) -> str:
    """The name of the delta table of a captured table."""
    return f"delta_{captured.number}"


def delta_sql(database: str, captured: Captured) -> str:
    """The delta table of a captured table."""
    return table_sql(database, QualifiedName(SCHEMA, delta_name(captured)))


def bookkeeping_sql(database: str) -> str:
    """The table that lists what is captured."""
    return table_sql(database, QualifiedName(SCHEMA, BOOKKEEPING))


def booked_query(database: str) -> str:
    """(number, schema, table, columns) of what is captured."""
    return f"SELECT number, schema_name, table_name, columns FROM {bookkeeping_sql(database)}"


def schema_ddl(database: str) -> list[str]:
    """The schema and the bookkeeping table, if they are not there."""
    return [
        f"CREATE SCHEMA IF NOT EXISTS {quote(database)}.{quote(SCHEMA)}",
        f"CREATE TABLE IF NOT EXISTS {bookkeeping_sql(database)} "
        "(number INTEGER, database_name VARCHAR, schema_name VARCHAR, table_name VARCHAR, columns VARCHAR[], "
        "triggers VARCHAR[])",
    ]


def delta_ddl(database: str, captured: Captured) -> str:
    """CREATE the delta table; taking the columns from the table itself keeps every type and collation."""
    columns = "".join(f", {quote(name)} AS c{i}" for i, name in enumerate(captured.columns))
    return (
        f"CREATE TABLE {delta_sql(database, captured)} AS "
        f"SELECT 1::TINYINT AS w, 0::BIGINT AS tx{columns} FROM {table_sql(database, captured.table)} LIMIT 0"
    )


TRIGGERS = ("__sqlfront_delete", "__sqlfront_insert", "__sqlfront_update")


def trigger_ddl(database: str, captured: Captured, named_for: str) -> list[str]:
    """CREATE the three triggers. Columns are named: a `*` would break at the next ADD COLUMN.

    DuckDB stores the body as it is written. With the database `named_for` in it, it resolves whatever the writer's USE
    says, but not after the file has another name; with the schema alone ("") under any name that the writer's USE says.
    """
    names = "".join(f", {quote(name)}" for name in captured.columns)
    delta = QualifiedName(SCHEMA, delta_name(captured))
    into = f"INSERT INTO {table_sql(named_for, delta) if named_for else delta} "
    gone = f"SELECT -1, txid_current(){names} FROM __sqlfront_old WHERE {UNTOLD}"
    come = f"SELECT 1, txid_current(){names} FROM __sqlfront_new WHERE {UNTOLD}"
    old, new = "OLD TABLE AS __sqlfront_old", "NEW TABLE AS __sqlfront_new"
    parts = (
        ("DELETE", old, gone),
        ("INSERT", new, come),
        ("UPDATE", f"{old} {new}", f"{gone} UNION ALL {come}"),
    )
    on = table_sql(database, captured.table)
    return [
        f"CREATE TRIGGER {name} AFTER {event} ON {on} REFERENCING {tables} FOR EACH STATEMENT {into}{body}"
        for name, (event, tables, body) in zip(TRIGGERS, parts, strict=True)
    ]


def tell(told: bool) -> str:
    """Let the triggers pass over the writes of a session from its next statement on, or capture them again.

    DuckDB's binder folds the variable: a statement that tells its changes plans no write of a delta table.
    """
    return f"SET VARIABLE {OWN} = true" if told else f"RESET VARIABLE {OWN}"


def drop_triggers_ddl(
    database: str, table: QualifiedName, names: Iterable[str] = TRIGGERS, *, if_exists: bool = False
) -> list[str]:
    """DROP the named triggers of the table, which is there."""
    drop = "DROP TRIGGER IF EXISTS" if if_exists else "DROP TRIGGER"
    return [f"{drop} {name} ON {table_sql(database, table)}" for name in names]


def triggers_query(database: str) -> str:
    """(schema, table, name, oid, definition) of our triggers in the database."""
    return (
        "SELECT schema_name, table_name, trigger_name, trigger_oid, sql FROM duckdb_triggers() "
        f"WHERE database_name = {literal(database)} AND trigger_name IN {TRIGGERS}"
    )


def alive_query(database: str) -> str:
    """The oids of all triggers, ours among them; a trigger that was dropped and made again has another oid."""
    return f"SELECT trigger_oid FROM duckdb_triggers() WHERE database_name = {literal(database)}"


def foreign_query(database: str, captures: Iterable[Captured]) -> str:
    """One row 0 if any delta table holds a change of another transaction, none otherwise."""
    parts = [f"SELECT 0::BIGINT FROM {delta_sql(database, c)} WHERE tx <> txid_current()" for c in captures]
    return f"({' UNION ALL '.join(parts)}) LIMIT 1" if parts else "SELECT 0::BIGINT WHERE false"


def stored_query(database: str) -> str:
    """A row for each delta table: 0 if it stores committed rows, deleted ones included, else -1."""
    return f"SELECT if(estimated_size > 0, 0, -1)::BIGINT FROM {_deltas(database)}"


def filled_query(database: str) -> str:
    """The names of the delta tables that store committed rows, deleted ones included."""
    return f"SELECT table_name FROM {_deltas(database)} AND estimated_size > 0"


def _deltas(database: str) -> str:
    return (
        f"duckdb_tables() WHERE database_name = {literal(database)} AND schema_name = {literal(SCHEMA)} "
        "AND starts_with(table_name, 'delta_')"
    )


def whose(own: bool | None) -> str:
    """The predicate that picks the changes of this transaction, of the others, or all."""
    return {True: "tx = txid_current()", False: "tx <> txid_current()", None: "true"}[own]


def pending_query(database: str, captured: Captured, own: bool | None) -> str:
    """The captured rows under the table's own column names, then `_weight`, then the rowid."""
    return f"SELECT {_named(captured)}, __d.rowid FROM {delta_sql(database, captured)} __d WHERE {whose(own)}"


def changed_query(database: str, captures: Iterable[Captured], own: bool | None) -> str:
    """The numbers of the tables that have captured rows; cheap, where taking none would be a statement each."""
    parts = [f"(SELECT {c.number} FROM {delta_sql(database, c)} WHERE {whose(own)} LIMIT 1)" for c in captures]
    return " UNION ALL ".join(parts)


def take_statement(
    database: str, captured: Captured, own: bool | None, columns: Mapping[str, str] | None = None
) -> str:
    """Delete the captured rows and return them by the table's own names, then `_weight`: all columns, or those of these
    names and types."""
    return f"DELETE FROM {delta_sql(database, captured)} WHERE {whose(own)} RETURNING {_named(captured, columns)}"


def _named(captured: Captured, columns: Mapping[str, str] | None = None) -> str:
    places = {name.casefold(): i for i, name in enumerate(captured.columns)}
    chosen = dict.fromkeys(captured.columns, "") if columns is None else columns
    names = "".join(
        f"{carried_sql(f'c{places[name.casefold()]}', type)} AS {quote(name)}, " for name, type in chosen.items()
    )
    return f"{names}w::BIGINT AS {WEIGHT}"

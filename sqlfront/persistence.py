"""What the database file remembers of us, and bringing it back when the file is opened."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from maintenance.relation import Column
from sqlfront.database import SCHEMA, ChangeTable, Database
from storage.capture import QualifiedName
from storage.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable

_TABLES = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.views (
    schema VARCHAR, name VARCHAR, query VARCHAR, options VARCHAR, column_names VARCHAR, scan BIGINT);
CREATE TABLE IF NOT EXISTS {SCHEMA}.change_tables (
    schema VARCHAR, name VARCHAR, columns VARCHAR, keys VARCHAR, defaults VARCHAR, options VARCHAR, scan BIGINT);
CREATE TABLE IF NOT EXISTS {SCHEMA}.state (epoch BIGINT);
"""


def prepare(con: Any) -> None:
    """Make the bookkeeping tables."""
    con.execute(_TABLES)


def save_change_table(con: Any, table: ChangeTable) -> None:
    """Write a change table's definition, in the transaction of `con`."""
    con.execute(
        f"INSERT INTO {SCHEMA}.change_tables VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            table.name.schema,
            table.name.name,
            json.dumps([[c.name, c.type, c.not_null] for c in table.columns]),
            json.dumps(table.keys),
            json.dumps(table.defaults),
            json.dumps(table.options),
            table.scan,
        ],
    )


def save_epoch(database: Database) -> None:
    """Remember the last epoch, so that its number is never used again."""
    if database.path in ("", ":memory:") or not (database.views or database.change_tables):
        return
    con = database.root.cursor()
    con.execute("BEGIN")
    con.execute(f"DELETE FROM {SCHEMA}.state")
    con.execute(f"INSERT INTO {SCHEMA}.state VALUES (?)", [database.engine.epoch])
    con.execute("COMMIT")
    con.close()


def restore(database: Database) -> None:
    """Bring back change tables (empty, lost until fed again) and views (rebuilt from their tables).

    A view that cannot be rebuilt stays in the catalog and raises when it is read. O(rows of the views' tables).
    """
    con = database.root.cursor()
    known = con.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = 'views'",
        [database.name, SCHEMA],
    ).fetchall()[0][0]
    if not known:
        return
    database.engine.epoch = (con.execute(f"SELECT max(epoch) FROM {SCHEMA}.state").fetchall()[0][0]) or 0
    problems = database.capture.open(con)
    for row in con.execute(f"SELECT * FROM {SCHEMA}.change_tables").fetchall():
        _restore_change_table(database, row)
    views = con.execute(f"SELECT * FROM {SCHEMA}.views ORDER BY scan").fetchall()
    for number, row in enumerate(progress(views, "rebuilding views")):
        _restore_view(database, con, row)
    for problem in problems:
        print(f"sqlfront: {problem}", file=sys.stderr)
    con.close()
    database.changed()


def _restore_change_table(database: Database, row: tuple[Any, ...]) -> None:
    schema, name, columns, keys, defaults, options, scan = row
    table = ChangeTable(
        QualifiedName(schema, name),
        tuple(Column(*column) for column in json.loads(columns)),
        tuple(tuple(key) for key in json.loads(keys)),
        json.loads(defaults),
        json.loads(options),
        scan,
        lost=database.engine.epoch,
    )
    database.take_scan(scan)
    database.change_tables[table.name.key] = table
    database.engine.create_table(database.relation_key(table.name), table.columns, retain=table.retain)


def _restore_view(database: Database, con: Any, row: tuple[Any, ...]) -> None:
    from sqlfront.ddl import build_view

    schema, name, query, options, column_names, scan = row
    database.take_scan(scan)
    try:
        entry = build_view(
            database, con, QualifiedName(schema, name), query, json.loads(options), tuple(json.loads(column_names)), scan
        )
    except Error as error:
        print(f"sqlfront: materialized view {schema}.{name} could not be rebuilt: {error}", file=sys.stderr)
        return
    database.views[entry.name.key] = entry


def progress(items: list[Any], what: str) -> Iterable[Any]:
    """The items, with a bar on a terminal's standard error while they are worked through."""
    shown = sys.stderr.isatty() and len(items) > 0
    for number, item in enumerate(items):
        if shown:
            done = 30 * number // len(items)
            print(f"\rsqlfront: {what} [{'#' * done}{'.' * (30 - done)}] {number}/{len(items)}", end="", file=sys.stderr)
        yield item
    if shown:
        print(f"\rsqlfront: {what} [{'#' * 30}] {len(items)}/{len(items)}", file=sys.stderr)

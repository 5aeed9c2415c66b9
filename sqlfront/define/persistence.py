"""What the database file remembers of us, and bringing it back when the file is opened."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from sqlfront.binding.session_settings import settings_of
from sqlfront.database.database import SCHEMA, Database
from sqlfront.database.entries import ChangeTable, StoredView, UnbuiltView
from sqlfront.database.epoch_numbers import reserve_epochs
from sqlfront.database.failures import translated
from sqlfront.database.names import shown
from sqlfront.database.scans import QUERY_PREFIX
from sqlfront.sql.search_path import Names
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import Error
from sqlfront.storage.sql_text import quote

Adopt: TypeAlias = Callable[[Database, Any, Sequence[StoredView], Callable[[], None], Sequence[Error]], set[int]]
"""Calls a function that makes the change tables, and brings back views without building them; their scans."""
_TABLES = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.views (
    schema VARCHAR, name VARCHAR, written VARCHAR, query VARCHAR, options VARCHAR, column_names VARCHAR, scan BIGINT,
    settings VARCHAR);
ALTER TABLE {SCHEMA}.views ADD COLUMN IF NOT EXISTS settings VARCHAR;
CREATE TABLE IF NOT EXISTS {SCHEMA}.change_tables (
    schema VARCHAR, name VARCHAR, columns VARCHAR, keys VARCHAR, defaults VARCHAR, options VARCHAR, scan BIGINT);
CREATE TABLE IF NOT EXISTS {SCHEMA}.state (epoch BIGINT, reserved BIGINT);
CREATE TABLE IF NOT EXISTS {SCHEMA}.identity (token VARCHAR);
"""


BOOKKEEPING = ("views", "change_tables", "state", "identity", "offsets")


def prepare(database: Database, con: Any, names: Names | None = None) -> None:
    """Make the bookkeeping tables, and reserve epoch numbers in a file, before the first epoch that matters.

    What this process has made, and this statement has found there by `names`, is not made again.
    """
    if not (database.is_prepared and names and all(names.at(database.name, SCHEMA, table) for table in BOOKKEEPING)):
        con.execute(_TABLES)
        database.log.prepare(con)
        database.is_prepared = True
    if not database.token and not database.in_memory and not (database.views or database.change_tables):
        database.token = f"{secrets.token_hex(6)}_"
        con.execute(f"INSERT INTO {SCHEMA}.identity VALUES (?)", [database.token])
    if database.epoch_limit is None and not database.in_memory:
        reserve_epochs(database)


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


def restore(database: Database, adopt: Adopt | None = None) -> None:
    """Bring back change tables (from their logs; without, empty and lost until fed again) and views: those that `adopt`
    brings back, the others rebuilt.

    A view that cannot be rebuilt stays in the catalog and raises when it is read. O(rows of the views' tables).
    """
    con = database.cursor()
    query = "SELECT table_name FROM duckdb_tables() WHERE database_name = ? AND schema_name = ?"
    known = {name for (name,) in con.execute(query, [database.name, SCHEMA]).fetchall()}
    if "state" not in known:
        _begin(database, con, known)
        con.close()
        return
    from sqlfront.database.durable import replay

    database.token, untrusted = identity(con, database.name), []
    if not database.read_only:
        database.log.prepare(con)
        untrusted = database.capture.open(con)  # What it cannot trust is captured anew, as the views are rebuilt.
    rows = con.execute(f"SELECT * FROM {SCHEMA}.views ORDER BY scan ASC").fetchall()
    settings = settings_of(con) if rows else {}
    views = [_stored_view(settings, row) for row in rows]
    for view in views:
        database.take_scan(view.scan)
    begin = partial(_begin, database, con, known)
    adopted = adopt(database, con, views, begin, untrusted) if adopt is not None and views else None
    if adopted is None:
        begin()
    if any(table.durable for table in database.change_tables.values()):
        database.offsets = database.log.offsets(con)
        if not adopted:
            replay(database, con)
    _convert(database, con, views)
    if (views or database.change_tables) and not database.read_only:
        reserve_epochs(database)  # From here on no snapshot fits the file.
    database.replaying = True
    missing = [view for view in views if not adopted or view.scan not in adopted]
    columns = {}
    if missing:
        from sqlfront.database.stored_views import columns_of

        columns = columns_of(database, con, missing)
    for number, view in enumerate(missing, 1):
        with database.progress.watch(f"rebuilding {number} of {len(missing)} views, {view.name.name}"):
            _restore_view(database, con, view, columns[view.name.key])
    database.replaying = False
    for table in database.change_tables.values():
        if table.durable:
            relation = database.engine.relations[database.relation_key(table.name)]
            relation.passed = database.log.count(con, table.scan) > 0
    con.close()
    database.changed()


def identity(con: Any, database: str) -> str:
    """The token in the scan names of a file; empty for a file without views, and for files of before tokens."""
    known = con.execute(
        "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = 'identity'",
        [database, SCHEMA],
    ).fetchall()
    query = f"SELECT coalesce(max(token), '') FROM {quote(database)}.{SCHEMA}.identity"
    return str(con.execute(query).fetchall()[0][0]) if known else ""


def _convert(database: Database, con: Any, views: Sequence[StoredView]) -> None:
    """Give each view and change table of the file that an earlier release has left without a stored query one."""
    query = "SELECT view_name FROM duckdb_views() WHERE database_name = ? AND starts_with(view_name, ?)"
    found = con.execute(query, [database.name, f"{QUERY_PREFIX}{database.token}"]).fetchall()
    present = {name for (name,) in found}
    old_views = [view for view in views if database.query_name(view.scan) not in present]
    tables = [table for table in database.change_tables.values() if database.query_name(table.scan) not in present]
    if old_views or tables:
        from sqlfront.define.earlier_files import convert  # With sqlglot, which other files do not need to be opened.

        convert(database, con, views, old_views, tables)


def _begin(database: Database, con: Any, known: Collection[str]) -> None:
    """Begin with the epoch, the clock and the change tables of a file, which has these bookkeeping tables."""
    if "clocks" in known:
        from sqlfront.database.view_time import restore_clock

        restore_clock(database, con)
    if "state" in known:
        [(epoch,)] = con.execute(f"SELECT coalesce(max(reserved), 0) FROM {SCHEMA}.state").fetchall()
        database.engine.begin_after(epoch)
        for row in con.execute(f"SELECT * FROM {SCHEMA}.change_tables").fetchall():
            _restore_change_table(database, row)


def _restore_change_table(database: Database, row: tuple[Any, ...]) -> None:
    from sqlfront.maintenance.relation.base_relation import Column

    schema, name, columns, keys, defaults, options, scan = row
    table = ChangeTable(
        QualifiedName(schema, name),
        tuple(Column(*column) for column in json.loads(columns)),
        tuple(tuple(key) for key in json.loads(keys)),
        json.loads(defaults),
        json.loads(options),
        scan,
    )
    if not table.durable:
        table.lost = database.engine.epoch
    database.take_scan(scan)
    database.change_tables[table.name.key] = table
    database.engine.create_table(database.relation_key(table.name), table.columns, retain=table.retain)


def _stored_view(present: Mapping[str, str], row: tuple[Any, ...]) -> StoredView:
    """A view of the file; `present` are the settings of the session."""
    schema, view, written, query, options, column_names, scan, *frozen = row
    # A file of before settings were stored has none; later versions of DuckDB may have more of them.
    settings = {**present, **(json.loads(frozen[0]) if frozen and frozen[0] else {})}
    names = tuple(json.loads(column_names))
    return StoredView(QualifiedName(schema, view), written, query, json.loads(options), names, scan, settings)


def _restore_view(database: Database, con: Any, view: StoredView, columns: tuple[tuple[str, str], ...]) -> None:
    """Build a view anew. DuckDB's view of it has these `columns`, and is made again if the built view has others."""
    from sqlfront.database.stored_views import forget_view, store_view
    from sqlfront.database.transactions import transaction
    from sqlfront.define.build import build_view

    try:
        with translated(None):
            entry = build_view(database, con, view)
    except Error as error:
        reason = ": ".join(filter(None, (error.what, error.why)))
        why = f"it could not be rebuilt when the database was opened: {reason}"
        database.unbuilt[view.name.key] = UnbuiltView(**vars(view), columns=columns, why=why)
        print(f"sqlfront: materialized view {shown(view.name)} could not be rebuilt: {error}", file=sys.stderr)
        return
    database.views[view.name.key] = entry
    if columns != entry.definition.columns and not database.read_only:
        with transaction(con):
            forget_view(database, con, entry)
            store_view(database, con, entry)

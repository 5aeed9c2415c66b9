"""Files of earlier releases, converted when they are opened: views that only sqlfront could read get stored queries.

One transaction converts the file. If it fails the file is as it was, for the earlier release to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.database.entries import ChangeTable, StoredView
from sqlfront.database.failures import translated
from sqlfront.database.names import Key, shown
from sqlfront.database.scans import QUERY_PREFIX
from sqlfront.database.stored_queries import query_over_tables, refusing
from sqlfront.database.stored_views import drop_views, put_views, store_change_table
from sqlfront.database.transactions import transaction
from sqlfront.database.user_settings import frozen
from sqlfront.storage.errors import Error, OperationalError

if TYPE_CHECKING:
    from sqlfront.database.database import Database


def convert(database: Database, con: Any, views: Sequence[StoredView]) -> None:
    """Give each view and change table of the file that has no stored query one. OperationalError if that cannot be."""
    prefix = f"{QUERY_PREFIX}{database.token}"
    found = con.execute(
        "SELECT view_name FROM duckdb_views() WHERE database_name = ? AND starts_with(view_name, ?)",
        [database.name, prefix],
    ).fetchall()
    present = {name for (name,) in found}
    old_views = [view for view in views if database.query_name(view.scan) not in present]
    tables = [table for table in database.change_tables.values() if database.query_name(table.scan) not in present]
    if not old_views and not tables:
        return
    if database.read_only:
        raise OperationalError(
            f"{database.path} cannot be opened read-only",
            why="an earlier release has written it, and its views must be converted first",
            hint="open it once without access_mode = 'READ_ONLY'",
        )
    known: dict[Key, StoredView | ChangeTable] = {view.name.key: view for view in views}
    known |= database.change_tables
    queries = [_query(database, con, view, query_over_tables(database, view, known)) for view in old_views]
    try:
        with translated(None), transaction(con):
            for table in tables:
                drop_views(database, con, table.name, table.scan)
                store_change_table(database, con, table)
            for view, query in zip(old_views, queries, strict=True):
                drop_views(database, con, view.name, view.scan)
                with frozen(con, view.settled):
                    put_views(database, con, view.name, view.scan, query)
    except Error as error:
        raise OperationalError(
            f"{database.path} could not be converted",
            why=f"an earlier release has written it, and its views need queries for other clients: {error.what}",
            hint="nothing has changed: open it with the release that has written it",
        ) from error


def columns_of(database: Database, con: Any, view: StoredView) -> tuple[tuple[str, str], ...]:
    """The columns of a view's DuckDB view."""
    found = con.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = ? AND schema_name = ? "
        "AND table_name = ? ORDER BY column_index",
        [database.name, view.name.schema, view.name.name],
    ).fetchall()
    return tuple((name, type_) for name, type_ in found)


def _query(database: Database, con: Any, view: StoredView, query: str) -> str:
    """A view's query; where DuckDB refuses it, as a table may be gone, one that tells its readers why."""
    import duckdb

    try:
        with frozen(con, view.settled):
            con.execute(f"EXPLAIN {query}").fetchall()
    except duckdb.Error as error:
        message = f"materialized view {shown(view.name)} cannot be computed: {str(error).splitlines()[0]}"
        return refusing(columns_of(database, con, view), message)
    return query

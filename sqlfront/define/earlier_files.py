"""Files of earlier releases, converted when they are opened: views that only sqlfront could read get stored queries.

One transaction converts the file. If it fails the file is as it was, for the earlier release to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.database.entries import ChangeTable, StoredView
from sqlfront.database.failures import translated
from sqlfront.database.names import Key, shown
from sqlfront.database.stored_queries import query_over_tables, refusing
from sqlfront.database.stored_views import columns_of, drop_views, put_views, store_change_table
from sqlfront.database.transactions import transaction
from sqlfront.database.user_settings import frozen
from sqlfront.storage.errors import Error, OperationalError

if TYPE_CHECKING:
    from sqlfront.database.database import Database


def convert(
    database: Database,
    con: Any,
    views: Sequence[StoredView],
    old_views: Sequence[StoredView],
    tables: Sequence[ChangeTable],
) -> None:
    """Give these of the file's views, and these change tables, stored queries. OperationalError if that cannot be."""
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


def _query(database: Database, con: Any, view: StoredView, query: str) -> str:
    """A view's query; where DuckDB refuses it, as a table may be gone, one that tells its readers why."""
    import duckdb

    try:
        with frozen(con, view.settled):
            con.execute(f"EXPLAIN {query}").fetchall()
    except duckdb.Error as error:
        message = f"materialized view {shown(view.name)} cannot be computed: {str(error).splitlines()[0]}"
        return refusing(columns_of(database, con, [view])[view.name.key], message)
    return query

"""The first rows of a view in its order: from a ranked tree, or by a query that sorts them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.query import Limit
from sqlfront.database import scan_name
from sqlfront.ddl import view_query
from sqlfront.failures import translated
from sqlfront.names import shown
from sqlfront.scans import Scan
from storage.errors import ProgrammingError

if TYPE_CHECKING:
    from sqlfront.connection import Connection
    from sqlfront.database import Database, ViewEntry
    from sqlfront.scans import ReadSession


def top_rows(connection: Connection, entry: ViewEntry, k: int) -> list[tuple[Any, ...]]:
    """The first k rows of a view in its first order; see View.top."""
    if k < 0:
        raise ProgrammingError(f"there are no first {k} rows")
    database = connection._database
    definition = entry.definition
    if not definition.orders:
        raise ProgrammingError(
            f"materialized view {shown(entry.name)} has no order",
            why="its query has neither ORDER BY nor LIMIT, and it has no order_by",
            hint="create it with ORDER BY, or SELECT ... ORDER BY ... LIMIT",
        )
    with connection._reading_own():
        database.refuse_dropped(entry)
        database.refuse_unreadable(entry, connection._current_session())
        if 0 in entry.maintained.ranked:
            return _ranked_rows(connection, entry, k)
        query = _sorted_query(database, entry, k)
        with translated(connection._session_error):
            rows: list[tuple[Any, ...]] = connection._duck.execute(query).fetchall()
        return rows


def ranked_scan(database: Database, entry: ViewEntry, number: int, limit: Limit, session: Any) -> Scan:
    """The maintained core of a view's first rows in one of its orders."""
    from maintenance.output import schema, top_batches
    from maintenance.top import RankedWalk

    def batches(session: ReadSession) -> Any:
        database.refuse_unreadable(entry, session)
        return top_batches(entry.maintained, RankedWalk(entry.maintained.ranked[number]), limit)

    return Scan(lambda: schema(entry.maintained), batches, session)


def within(entry: ViewEntry, limit: Limit) -> Limit:
    """Some of a view's rows as rows of its order, of which the view may be a part itself."""
    own = entry.definition.limit
    if own is None:
        return limit
    left = None if own.rows is None else max(0, own.rows - limit.offset)
    rows = min((count for count in (left, limit.rows) if count is not None), default=None)
    return Limit(rows, own.offset + limit.offset)


def _ranked_rows(connection: Connection, entry: ViewEntry, k: int) -> list[tuple[Any, ...]]:
    """Rows decoded here if all columns are variables or the sums that rows are ordered by; else computed by DuckDB."""
    from maintenance.first_rows import reader_of

    view, limit = entry.maintained, within(entry, Limit(k))
    if view.reader is None:
        view.reader = reader_of(view) or False
    found = view.reader.read(limit) if view.reader else None
    if found is not None:
        return found
    name = "__sqlfront_scan_top"
    scan = ranked_scan(connection._database, entry, 0, limit, connection._session_finder())
    connection._duck.register(name, scan)
    try:
        with translated(connection._session_error):
            query = view_query(entry.definition, entry, name)
            rows: list[tuple[Any, ...]] = connection._duck.execute(query).fetchall()
        return rows
    finally:
        connection._duck.unregister(name)


def _sorted_query(database: Database, entry: ViewEntry, k: int) -> str:
    """SQL for the first rows of a view that keeps no order."""
    limited = replace(entry.definition, limit=within(entry, Limit(k)))
    return view_query(limited, entry, scan_name(entry.scan))

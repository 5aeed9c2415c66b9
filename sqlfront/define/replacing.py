"""Views dropped, or replaced with what reads them, in one transaction.

DuckDB binds a view's query to the views it has then. So a new view is stored before those that read the one of its name
are bound, and all of them are built beside the old ones, which go when the transaction has been committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from sqlfront.binding.freeze import without_columns
from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.database import Database
from sqlfront.database.entries import StoredView, ViewEntry
from sqlfront.database.failures import translated
from sqlfront.database.names import shown
from sqlfront.database.stored_views import forget_view, store_view
from sqlfront.database.transactions import transaction
from sqlfront.define.build import Bound, bind_stored, draft
from sqlfront.define.drafts import fill
from sqlfront.define.following import following, unneeded_tables
from sqlfront.storage.errors import Error, IntegrityError, OperationalError, ProgrammingError


def built_anew(
    database: Database, con: Any, reader: ViewEntry, entries: Sequence[ViewEntry], undo: ExitStack
) -> ViewEntry:
    """A view built over those that take the places of what it reads, and stored. The first of them is new."""
    source = entries[0]
    present = {name.casefold() for name in source.column_names}
    read = next((view for view in reader.sources.values() if view.name.key == source.name.key), None)
    gone = [name for name in read.column_names if name.casefold() not in present] if read is not None else []
    select, missed = without_columns(reader.select, source.name, gone)
    if missed:
        raise _refused(source, reader, f"it has no column {', '.join(missed)} any more")
    view = StoredView(
        reader.name, reader.written, select, reader.options, reader.column_names, database.new_scan(), reader.settings
    )
    try:
        with translated(None):
            bound = bind_stored(EngineCatalog(database, con, entries), con, view)
            drafted = draft(database, view, bound)
            with following(database, con, view, bound):
                entry = fill(database, con, drafted, undo)
    except Error as error:
        fewer = f" (it has no column {', '.join(gone)} any more)" if gone else ""
        raise _refused(source, reader, ": ".join(filter(None, (error.what, error.why))) + fewer) from error
    store_view(database, con, entry)
    return entry


def refuse_circle(database: Database, old: StoredView, bound: Bound) -> None:
    """ProgrammingError if a query that is to replace a view's reads that view, itself or through others."""
    above = {view.name.key for view in [old, *database.dependents(old)]}
    for source in bound.sources.values():
        if source.name.key in above:
            through = "" if source.name.key == old.name.key else f" through {shown(source.name)}"
            raise ProgrammingError(
                f"materialized view {shown(old.name)} would read itself{through}",
                why="a view's query cannot depend on the view's own rows",
                hint="write out the query it has now, or create the view under another name",
            )


@contextmanager
def dropping(
    database: Database,
    con: Any,
    views: Sequence[StoredView],
    *,
    within: Callable[[Any], AbstractContextManager[ExitStack]] = transaction,
) -> Iterator[tuple[ExitStack, list[ViewEntry]]]:
    """Drop views and what only they needed in one transaction with the body, `within(con)`.

    The body is given the stack of what undoes it, and a list for the views, built and stored, that take the places of
    those that go.
    """
    catalog = EngineCatalog(database, con)
    entries: list[ViewEntry] = []
    try:
        with within(con) as undo:
            for view in views:
                forget_view(database, con, view)
            yield undo, entries
            tables = unneeded_tables(database, views, entries)
            if tables:
                database.capture.uninstall(con, [catalog.name(table) for table in tables], in_transaction=True)
    except BaseException:
        database.capture.reload(con)
        raise
    _leave(database, views, entries)
    for entry in entries:
        database.views[entry.name.key] = entry
    for table in tables:
        database.engine.drop_table(table)
    database.changed()


def _leave(database: Database, views: Sequence[StoredView], entries: Sequence[ViewEntry]) -> None:
    """Take views out of the engine, those that read others first."""
    anew = {entry.name.key for entry in entries[1:]}
    renamed = {view.name.key for view in views if entries and view.name.key != entries[0].name.key} - anew
    for view in sorted(views, key=lambda view: -view.scan):
        if isinstance(view, ViewEntry):
            database.detach(view)
            if view.feed is not None:
                done, why = "was dropped or replaced", None
                if view.name.key in anew:
                    why = f"{shown(entries[0].name)}, which it reads, was replaced"
                elif view.name.key in renamed:
                    done = f"was renamed to {shown(entries[0].name)}"
                view.feed.fail(OperationalError(f"materialized view {shown(view.name)} {done}", why=why))
        for kept in (database.views, database.unbuilt):
            if kept.get(view.name.key) is view:
                del kept[view.name.key]


def _refused(source: ViewEntry, reader: ViewEntry, why: str) -> IntegrityError:
    return IntegrityError(
        f"CREATE OR REPLACE MATERIALIZED VIEW {shown(source.name)} is refused",
        why=f"materialized view {shown(reader.name)} reads it, and cannot be built over the new query: {why}",
        hint=f"keep what {shown(reader.name)} reads, or DROP MATERIALIZED VIEW {shown(reader.name)} CASCADE first",
    )

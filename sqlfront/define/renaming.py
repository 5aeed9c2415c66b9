"""ALTER MATERIALIZED VIEW ... RENAME TO: the view is built under its new name beside the old one, as CREATE OR REPLACE
builds one, and takes its place in one transaction.

Nodes of the engine, snapshots and told changes go by a view's name, so nothing of the old view is kept. Cost: O(rows of
the view's tables).
"""

from __future__ import annotations

from typing import Any

from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.database import Database
from sqlfront.database.entries import StoredView, ViewEntry
from sqlfront.database.names import new_name, require_current, shown
from sqlfront.define.build import bind_stored, draft
from sqlfront.define.ddl import put_in_place, refuse_other_object, refuse_passed
from sqlfront.sql.search_path import Names
from sqlfront.sql.statements import RenameMaterializedView
from sqlfront.storage.errors import IntegrityError


def rename_view(database: Database, con: Any, statement: RenameMaterializedView) -> None:
    """Give a view another name in its schema. On any error nothing has changed.

    IntegrityError where other views read it, ProgrammingError for a name that is taken, and for a view that cannot be
    built anew. Subscriptions to the view end with OperationalError, which says the new name.
    """
    with database.lock:
        require_current(database, con)
        old = database.view(con, statement.name.parts)
        names = Names(con)
        name = new_name(database, con, (old.name.schema, statement.to), names)
        if name.key != old.name.key or name == old.name:
            refuse_other_object(database, name, names)
        _refuse_readers(database, old)
        refuse_passed(database, old)
        view = StoredView(
            name, old.written, old.select, old.options, old.column_names, database.new_scan(), old.settings
        )
        bound = bind_stored(EngineCatalog(database, con), con, view)
        put_in_place(database, con, draft(database, view, bound), bound, old)


def _refuse_readers(database: Database, view: ViewEntry) -> None:
    """IntegrityError naming the materialized views whose queries have the present name."""
    if readers := database.dependents(view):
        found = ", ".join(shown(one.name) for one in readers)
        raise IntegrityError(
            f"ALTER MATERIALIZED VIEW {shown(view.name)} RENAME is refused",
            why=f"materialized views read it by this name: {found}",
            hint="drop them, rename it, and create them over the new name; or leave it its name, and create a view of "
            f"the new one: CREATE MATERIALIZED VIEW new_name AS FROM {shown(view.name)}",
        )

"""CREATE INDEX and DROP INDEX on a materialized view: an order that queries of the view may ask for.

An index is kept as the option `order_by` is, by a ranked tree where there is one for its order, and has a name. Making
or dropping one builds the view anew. Indexes of tables are DuckDB's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.names import locate, shown
from sqlfront.database.user_settings import frozen
from sqlfront.define import ddl
from sqlfront.define.build import bind, orders_of
from sqlfront.sql.carets import caret
from sqlfront.sql.own_statements import read_own
from sqlfront.sql.statements import CreateViewIndex, DropViewIndex, PassThrough
from sqlfront.storage.errors import ProgrammingError

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry


def own_statement(database: Database, con: Any, statement: PassThrough) -> CreateViewIndex | DropViewIndex | None:
    """What a CREATE INDEX or DROP INDEX means if it is about a view; None if it is DuckDB's."""
    if statement.object != "index" or not statement.targets:
        return None
    [target, *_] = statement.targets
    if statement.verb == "drop":
        return DropViewIndex(statement.text, statement.start, target) if _owner(database, target.parts[-1]) else None
    if locate(database, con, target.parts, temporary=False) not in database.views:
        return None
    index = read_own(statement.text, statement.start)
    assert isinstance(index, CreateViewIndex)
    if index.unique:
        raise _refusal("UNIQUE on a view's index", statement, "an index of a view is an order, not a constraint")
    if index.using:
        raise _refusal("USING with a view's index", statement, "a view has one kind of index, a ranked tree")
    return index


def create_index(database: Database, con: Any, statement: CreateViewIndex) -> None:
    """Keep a view in one more order. ProgrammingError for a name that is taken or an order that is none; nothing has
    changed then. O(rows of the view's tables)."""
    with database.lock:
        entry = database.view(con, statement.view.parts)
        owner = _owner(database, statement.name)
        if owner is not None and statement.if_not_exists:
            return
        if owner is not None:
            raise ProgrammingError(
                f"index {statement.name} exists already",
                why=f"it is an index of materialized view {shown(owner.name)}",
                hint="DROP INDEX, or CREATE INDEX IF NOT EXISTS",
            )
        options = entry.options | {"indexes": {**entry.options.get("indexes", {}), statement.name: statement.order}}
        orders = orders_of(options)
        with frozen(con, entry.settled):
            bind(EngineCatalog(database, con), con, entry.select, column_names=entry.column_names, order_by=orders)
        ddl.rebuild_with(database, con, entry, options)


def drop_index(database: Database, con: Any, statement: DropViewIndex) -> None:
    """Keep a view without one of its orders. O(rows of the view's tables)."""
    with database.lock:
        index = statement.name.parts[-1]
        entry = _owner(database, index)
        assert entry is not None
        indexes = entry.options["indexes"].items()
        kept = {name: order for name, order in indexes if name.casefold() != index.casefold()}
        ddl.rebuild_with(database, con, entry, entry.options | {"indexes": kept})


def _owner(database: Database, index: str) -> ViewEntry | None:
    """The view that has an index of this name."""
    wanted = index.casefold()
    for entry in database.views.values():
        if any(name.casefold() == wanted for name in entry.options.get("indexes", {})):
            return entry
    return None


def _refusal(what: str, statement: PassThrough, why: str) -> ProgrammingError:
    where = caret(statement.text, 0, len(statement.text))
    return ProgrammingError(what, where=where, why=why, hint="CREATE INDEX name ON view (column DESC, ...)")

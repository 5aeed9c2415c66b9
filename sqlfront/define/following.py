"""The tables that the engine follows: captured before a view over them is built, let go with the last view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.database import Database
from sqlfront.database.entries import ChangeTable, StoredView, ViewEntry
from sqlfront.database.failures import translated
from sqlfront.database.names import shown
from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.storage.errors import DataError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.define.build import Bound


@contextmanager
def following(
    database: Database, con: Any, view: StoredView, bound: Bound, undo: ExitStack | None = None
) -> Iterator[None]:
    """The engine follows the tables that a view reads. If the body fails, tables that were not followed before are let
    go; in an open transaction by the stack that undoes it. A DataError names the view."""
    kept = {database.relation_key(table.name): table for table in database.change_tables.values()}
    for table in bound.tables & kept.keys():
        _refuse_passed_rows(database, kept[table])
    columns = {table: columns_of_table(database, table, bound.catalog) for table in sorted(bound.tables - kept.keys())}
    fresh = [table for table in columns if table not in database.engine.relations]
    if undo is not None:
        undo.callback(_forget, database, fresh)
    try:
        _capture(database, con, bound.catalog, columns, in_transaction=undo is not None)
        for source in bound.fed.values():
            database.engine.expose(source.maintained.name)
        with _naming(view):
            yield
    except BaseException:
        if undo is None:
            _let_go(database, con, bound.catalog, fresh)
            database.engine.drop_unread()
        raise


def unneeded_tables(
    database: Database, views: Sequence[StoredView], replaced_by: Sequence[ViewEntry] = ()
) -> list[str]:
    """The captured tables that no view reads when others have taken the places of these."""
    staying = [entry.tables for entry in database.views.values() if not any(entry is view for view in views)]
    staying += [entry.tables for entry in replaced_by]
    kept = {database.relation_key(table.name) for table in database.change_tables.values()}
    read = set().union(*(view.tables for view in views if isinstance(view, ViewEntry)))
    return sorted((read & database.engine.relations.keys()) - kept.union(*staying))


def columns_of_table(database: Database, table: str, catalog: EngineCatalog) -> list[Column]:
    """The columns of a table, as the catalog has them now."""
    known = catalog.columns(table)
    if known is None:  # The binding has not looked the table up.
        name = catalog.name(table)
        known = catalog.columns(catalog.resolve((database.name, name.schema, name.name)) or "")
    return [Column(*column) for column in known or ()]


# Inside ------------------------------------------------------------------------------------------


def _capture(
    database: Database,
    con: Any,
    catalog: EngineCatalog,
    tables: Mapping[str, Sequence[Column]],
    *,
    in_transaction: bool,
) -> None:
    """Make the engine follow tables with these columns. The rows of a read-only file never change."""
    known = database.engine.relations
    for table, columns in tables.items():
        if table not in known:
            database.engine.create_table(table, columns, retain=False)
    if not database.read_only:
        needed = {catalog.name(table): [column.name for column in columns] for table, columns in tables.items()}
        database.capture.install(con, needed, in_transaction=in_transaction)
    for table, columns in tables.items():
        known[table].columns = tuple(columns)  # Columns may have been added since.


def _forget(database: Database, tables: Sequence[str]) -> None:
    for table in set(tables) & database.engine.relations.keys():
        database.engine.drop_table(table)


def _let_go(database: Database, con: Any, catalog: EngineCatalog, tables: Sequence[str]) -> None:
    """Stop following tables that no view reads."""
    _forget(database, tables)
    if tables and not database.read_only:
        database.capture.uninstall(con, [catalog.name(table) for table in tables])


def _refuse_passed_rows(database: Database, table: ChangeTable) -> None:
    relation = database.engine.relations[database.relation_key(table.name)]
    if not table.retain and relation.passed:
        raise ProgrammingError(
            f"a view over change table {shown(table.name)} cannot be built any more",
            why="rows have passed already, and WITH (retain = false) they are not kept",
            hint="create views before the first change, or the table WITH (retain = true)",
        )


@contextmanager
def _naming(view: StoredView) -> Iterator[None]:
    """DataError that names the view, when a row or a sum of its tables has no value."""
    try:
        with translated(None):
            yield
    except DataError as error:
        raise DataError(
            f"materialized view {shown(view.name)} cannot be built",
            where=error.where,
            why=": ".join(filter(None, (error.what, error.why))),
            hint=error.hint or "correct the rows, or leave them out of the query: WHERE, CASE, TRY_CAST",
        ) from error

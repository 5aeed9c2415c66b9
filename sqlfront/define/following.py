"""The tables that the engine follows: captured before a view over them is built, let go with the last view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
def following(database: Database, con: Any, view: StoredView, bound: Bound) -> Iterator[None]:
    """The engine follows the tables that a view reads. If the body fails, tables that were not followed before are let
    go. A DataError names the view."""
    fresh: list[str] = []
    kept = {database.relation_key(table.name): table for table in database.change_tables.values()}
    for table in bound.tables & kept.keys():
        _refuse_passed_rows(database, kept[table])
    try:
        for table in _uncovered(database, con, sorted(bound.tables - kept.keys()), bound.catalog):
            if _capture(database, con, table, bound.catalog):
                fresh.append(table)
        for source in bound.fed.values():
            database.engine.expose(source.maintained.name)
        with _naming(view):
            yield
    except BaseException:
        for table in fresh:
            _release(database, con, table)
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


# Inside ------------------------------------------------------------------------------------------


def _uncovered(database: Database, con: Any, tables: Sequence[str], catalog: EngineCatalog) -> list[str]:
    """The tables that the engine does not follow, or follows with other columns."""
    found = {catalog.name(table): _columns(database, table, catalog) for table in tables}
    names = {name: [column.name for column in columns] for name, columns in found.items()}
    covered = names.keys() if database.read_only else database.capture.covered(con, names)
    known = database.engine.relations
    return [
        table
        for table, (name, columns) in zip(tables, found.items(), strict=True)
        if table not in known or name not in covered or columns != list(known[table].columns)
    ]


def _columns(database: Database, table: str, catalog: EngineCatalog) -> list[Column]:
    known = catalog.columns(table)
    if known is None:  # The binding has not looked the table up.
        name = catalog.name(table)
        known = catalog.columns(catalog.resolve((database.name, name.schema, name.name)) or "")
    return [Column(*column) for column in known or ()]


def _capture(database: Database, con: Any, table: str, catalog: EngineCatalog) -> bool:
    """Make the engine follow a table; True if it did not before. The rows of a read-only file never change."""
    name, columns = catalog.name(table), _columns(database, table, catalog)
    fresh = table not in database.engine.relations
    if fresh:
        database.engine.create_table(table, columns, retain=False)
    try:
        if not database.read_only:
            database.capture.install(con, name, [column.name for column in columns])
    except BaseException:
        if fresh:
            database.engine.drop_table(table)
        raise
    database.engine.relations[table].columns = tuple(columns)  # Columns may have been added since.
    return fresh


def _release(database: Database, con: Any, table: str) -> None:
    """Stop following a table that no view reads."""
    database.engine.drop_table(table)
    if not database.read_only:
        database.capture.uninstall(con, EngineCatalog(database, con).name(table))


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

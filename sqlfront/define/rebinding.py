"""Views bind by name: tables under them are renamed, replaced and swapped, and the views are built anew at COMMIT.

A view reads its tables by the names of its query. A table that is renamed takes the view along, until another table
has the name: then the view reads that table. So three things end with the view over the table of its name: a swap (make
`t_new`, rename `t` to `t_old` and `t_new` to `t`, drop `t_old`), CREATE OR REPLACE TABLE, and CREATE TABLE under a name
that is free again. One transaction changes the tables, the views' definitions and what captures the tables. If a view
does not fit the new columns, the statement is refused, naming the view, and nothing has changed.

The transaction drops the capture triggers of the tables concerned, as DuckDB renames no table that has some. Reads of
the views are refused in the transaction. DuckDB lets no older transaction write to a table that was renamed or
replaced, so no write goes unseen. COMMIT costs O(rows of the views' tables).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlfront.binding.freeze import listed_columns, renamed_query, without_columns
from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.entries import StoredView, ViewEntry
from sqlfront.database.failures import translated
from sqlfront.database.names import Key, captured_table, shown
from sqlfront.database.stored_views import forget_view, store_view
from sqlfront.database.update_mix import renamed_updates
from sqlfront.define.build import bind_stored, build_view, draft
from sqlfront.define.drafts import fill
from sqlfront.define.following import following, unneeded_tables
from sqlfront.sql.name_parts import split_name
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.capture.trigger_sql import drop_triggers_ddl
from sqlfront.storage.errors import Error, IntegrityError, NotSupportedError, OperationalError
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.transactions import Transaction


class Rebinding:
    """What a transaction has done to tables under views.

    `names` are, by view and by the table that it reads as committed, the table that it reads now. `replaced` are the
    views that read other rows than before. `tables` are the committed captured tables whose triggers are gone.
    `statement` is the statement that builds the views.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._names: dict[Key, dict[Key, QualifiedName]] = {}
        self._built: list[ViewEntry] = []
        self._gone: list[str] = []
        self._begun = False
        self.statement = "COMMIT"
        self.replaced: set[Key] = set()
        self.tables: set[Key] = set()

    @property
    def views(self) -> list[ViewEntry]:
        """The views that are to be built anew, each after those it reads."""
        found = [self._database.views[key] for key in self._names]
        return sorted(found, key=lambda entry: entry.scan)

    def readers(self, table: QualifiedName) -> list[ViewEntry]:
        """The views that read a table by the name it has now, themselves or through views."""
        return [entry for entry in self._database.views.values() if any(self._reading(entry, table))]

    def followers(self, name: QualifiedName) -> list[ViewEntry]:
        """The views that would read a table of this name, and follow another that had it before."""
        return [entry for entry in self._database.views.values() if any(self._following(entry, name))]

    def move(self, old: QualifiedName, new: QualifiedName) -> None:
        """Note that a table is called `new`."""
        for entry in self.readers(old):
            for table in list(self._reading(entry, old)):
                self._set(entry, table, new)
        self.take(new)

    def take(self, name: QualifiedName) -> None:
        """Note that a table has a name under which others were known to views: they read it from now on."""
        for entry in self.followers(name):
            for table in list(self._following(entry, name)):
                self._set(entry, table, name)
            self.replaced.add(entry.name.key)

    def replace(self, table: QualifiedName) -> None:
        """Note that another table is in the place of this one."""
        for entry in self.readers(table):
            for read in list(self._reading(entry, table)):
                self._set(entry, read, table)
            self.replaced.add(entry.name.key)

    def release(self, con: Any, table: QualifiedName) -> None:
        """Drop the triggers of a captured table, if it has some, in the transaction of `con`."""
        database = self._database
        if table.key in {captured.key for captured in database.capture.tables()} - self.tables:
            database.capture.verify(con, [table])
            con.execute(";".join(drop_triggers_ddl(database.name, table)))
            self.tables.add(table.key)

    def check(self, con: Any, change: str) -> None:
        """IntegrityError for a view that cannot be built over its tables as the transaction has them."""
        for entry in self.views:
            try:
                with translated(None):
                    catalog = EngineCatalog(self._database, con)
                    bind_stored(catalog, con, self._definition(entry, catalog))
            except Error as error:
                raise _refused(change, entry, error) from error

    def build(self, con: Any, undo: ExitStack) -> None:
        """Build and store the views in the transaction of `con`. If it does not end well, `restore` must follow."""
        database, views = self._database, self.views
        _refuse_hidden(con, views)
        self._begun = True
        captured = [captured_table(database, key) for key in self.tables]
        for entry in reversed(views):
            forget_view(database, con, entry)
            database.detach(entry)
        database.capture.uninstall(con, captured, in_transaction=True)
        for table in captured:
            database.engine.drop_table(database.relation_key(table))
        for old in views:
            try:
                with translated(None):
                    self._built.append(self._built_anew(con, old, undo))
            except Error as error:
                raise _refused(self.statement, old, error) from error
        self._gone = unneeded_tables(database, views, self._built)
        catalog = EngineCatalog(database, con)
        database.capture.uninstall(con, [catalog.name(table) for table in self._gone], in_transaction=True)

    def publish(self) -> None:
        """Let the views that were built take the places of the others, after COMMIT."""
        database = self._database
        for old, new in zip(self.views, self._built, strict=True):
            sources = {key: database.views[source.name.key] for key, source in new.sources.items()}
            vars(old).update(vars(new) | {"sources": sources, "feed": old.feed})
            if old.feed is not None and old.name.key in self.replaced:
                why = "another table has taken the place of one that it reads"
                old.feed.fail(OperationalError(f"materialized view {shown(old.name)} was built anew", why=why))
                old.feed = None
            elif old.feed is not None:
                old.feed.follow()
        for table in self._gone:
            database.engine.drop_table(table)
        database.changed()

    def restore(self) -> None:
        """Bring the engine back to the views as they are committed, after ROLLBACK."""
        database = self._database
        if not self._begun:
            return
        with database.cursor() as con:
            database.capture.reload(con)
            for entry in reversed(self.views):
                database.detach(entry)
            for entry in self.views:
                try:
                    fresh = build_view(database, con, entry)
                except Error as error:
                    database.give_up(entry, f"its tables were to be replaced, which failed: {error.what}")
                else:
                    vars(entry).update(vars(fresh) | {"feed": entry.feed})
                    if entry.feed is not None:
                        entry.feed.follow()
        database.changed()

    # Inside --------------------------------------------------------------------------------------

    def _reading(self, entry: ViewEntry, table: QualifiedName) -> Iterator[QualifiedName]:
        """The tables, as committed, that a view reads under the name of `table` now."""
        moved = self._names.get(entry.name.key, {})
        return (read for read in _tables(entry) if moved.get(read.key, read).key == table.key)

    def _following(self, entry: ViewEntry, name: QualifiedName) -> Iterator[QualifiedName]:
        """The tables, as committed, that a view's query calls so, and that have another name now."""
        moved = self._names.get(entry.name.key, {})
        former = _former(entry)
        for read in _tables(entry):
            if former.get(read.key, read).key == name.key != moved.get(read.key, read).key:
                yield read

    def _set(self, entry: ViewEntry, table: QualifiedName, now: QualifiedName) -> None:
        self._names.setdefault(entry.name.key, {})[table.key] = now

    def _definition(self, entry: ViewEntry, catalog: EngineCatalog) -> StoredView:
        """A view's definition with the names that its tables have now. IntegrityError if it misses a column."""
        former, moved, options = _former(entry), self._names[entry.name.key], dict(entry.options)
        select, renamed = entry.select, []
        for table in _tables(entry):
            now, was = moved.get(table.key, table), former.get(table.key, table)
            if now.key != table.key:
                options = renamed_updates(options, table, self._database.relation_key(now))
            if now.key != was.key:
                renamed.append([now.schema, now.name, was.schema, was.name])
        if any(now.key != key for key, now in moved.items()):
            select = renamed_query(select, moved, {})
        options = {key: value for key, value in options.items() if key != _RENAMED} | (
            {_RENAMED: renamed} if renamed else {}
        )
        written = entry.written if select == entry.select else select
        for now in moved.values():
            select = _without_missing(select, now, catalog)
        return StoredView(entry.name, written, select, options, entry.column_names, entry.scan, entry.settings)

    def _built_anew(self, con: Any, old: ViewEntry, undo: ExitStack) -> ViewEntry:
        database = self._database
        catalog = EngineCatalog(database, con, self._built)
        view = replace(self._definition(old, catalog), scan=database.new_scan())
        bound = bind_stored(catalog, con, view)
        drafted = draft(database, view, bound)
        with following(database, con, view, bound, undo):
            entry = fill(database, con, drafted, undo)
        store_view(database, con, entry)
        return entry


def rebinding_of(transaction: Transaction | None, database: Database) -> Rebinding:
    """What the transaction, if one is open, has done to tables under views so far."""
    known = transaction.rebinding if transaction is not None else None
    return known if isinstance(known, Rebinding) else Rebinding(database)


_RENAMED = "renamed"
"""The option in which a view keeps what its tables were called in its query, for those that have been renamed."""


def has_followers(database: Database) -> bool:
    """Whether a view has followed a table to another name than its query has."""
    return any(_RENAMED in entry.options for entry in database.views.values())


def follows(entry: ViewEntry, table: QualifiedName) -> bool:
    """Whether a view has followed this table to another name than its query has."""
    return table.key in _former(entry)


def _former(entry: ViewEntry) -> dict[Key, QualifiedName]:
    """What a view's tables were called in its query, by their names now."""
    found = entry.options.get(_RENAMED, ())
    return {QualifiedName(schema, name).key: QualifiedName(*was) for schema, name, *was in found}


def _tables(entry: ViewEntry) -> list[QualifiedName]:
    return [QualifiedName(*split_name(table)) for table in sorted(entry.tables)]


def _refuse_hidden(con: Any, views: Sequence[ViewEntry]) -> None:
    """NotSupportedError if DuckDB would store queries that read temporary tables of the session."""
    temporary = {
        name
        for (name,) in con.execute(
            "SELECT lower(table_name) FROM duckdb_tables() WHERE database_name = 'temp' "
            "UNION ALL SELECT lower(view_name) FROM duckdb_views() WHERE database_name = 'temp'"
        ).fetchall()
    }
    for table in (table for entry in views for table in _tables(entry)):
        if table.name.lower() in temporary:
            raise NotSupportedError(
                f"temporary table {table.name} is in the way",
                why=f"materialized views over {shown(table)} are to be stored anew, and would read the temporary table",
                hint=f"DROP TABLE temp.{quote(table.name)}",
            )


def _without_missing(select: str, table: QualifiedName, catalog: EngineCatalog) -> str:
    """A frozen query without the columns that a table does not have, which the query must not need. IntegrityError."""
    found = catalog.resolve([catalog.database, table.schema, table.name])
    present = {name.casefold() for name, *_ in catalog.columns(found) or ()} if found is not None else set()
    gone = [name for name in listed_columns(select, table) if name.casefold() not in present]
    fitting, missed = without_columns(select, table, gone)
    if missed:
        raise IntegrityError(f"{shown(table)} has no column {', '.join(missed)} any more")
    return fitting


def _refused(statement: str, view: ViewEntry, error: Error) -> IntegrityError:
    return IntegrityError(
        f"{statement} is refused",
        why=f"materialized view {shown(view.name)} reads the table of this name, and does not fit the new one: "
        + ": ".join(filter(None, (error.what, error.why))),
        hint=f"give the new table the columns that {shown(view.name)} needs, or drop the view first",
    )

"""Mapped arrays of a snapshot that have not been checked: a view's are checked before its first read, and all of them
before the first change of the state.

So the state is that of the opening as long as arrays are unchecked. If a check does not hold, all views are built from
their tables as they are then, on the same engine, and the snapshot is given up. Nothing of damaged arrays is read on
the way: their tables are emptied as they are, and the references to dictionaries are counted anew.

Cost: one pass over the arrays, by several threads, under the lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlfront.database.durable import logged_rows
from sqlfront.database.failures import translated
from sqlfront.snapshots import snapshot_file
from sqlfront.snapshots.saving import publish
from sqlfront.storage.errors import Error, OperationalError
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry
    from sqlfront.snapshots.snapshot_file import SnapshotFile

log = logging.getLogger("sqlfront")


class Unchecked:
    """The mapped arrays of a snapshot, by their tables, until they are checked. `names` are the views, and the change
    tables, as the engine calls them, that read some."""

    def __init__(self, database: Database, file: SnapshotFile) -> None:
        self._database, self._file = database, file
        self._arrays: dict[int, tuple[Table, dict[str, int]]] = {}  # With each table, whose identity stays its own.
        self._damaged: dict[str, Table] = {}
        self._tables: dict[str, list[Table]] = {}
        self._checking = threading.Lock()  # DuckDB may read several views at once, in threads of its own.

    @property
    def names(self) -> Collection[str]:
        return self._tables.keys()

    def mapped(self, table: Table, name: str, size: int) -> int:
        """The address of an array of a table, which is checked later; 0 if it is to be read."""
        address = self._file.mapped(name, size)
        if address:
            self._arrays.setdefault(id(table), (table, {}))[1][name] = address
        return address

    def check(self, tables: Iterable[Table] | None = None) -> None:
        """Check the arrays of some tables, else of all. OperationalError if one has changed."""
        known = set(self._arrays) if tables is None else {id(table) for table in tables}
        waiting = [self._arrays[key] for key in known & self._arrays.keys()]
        changed = self._file.changed({name: address for _, arrays in waiting for name, address in arrays.items()})
        for table, arrays in waiting:
            self._damaged |= dict.fromkeys(changed & arrays.keys(), table)
            del self._arrays[id(table)]
        for name, table in self._damaged.items():
            if tables is None or id(table) in known:
                raise snapshot_file.changed(name)

    def wait(self) -> None:
        """Let the arrays wait until they are read, or the state changes."""
        database, engine = self._database, self._database.engine
        read = {
            entry.maintained.name: engine.tables_of([node.name for node in engine.nodes_of(entry.maintained)])
            for entry in database.views.values()
        }
        for name in [database.relation_key(table.name) for table in database.change_tables.values()]:
            read[name] = engine.tables_of((), [name])
        self._tables = {name: found for name, found in read.items() if any(id(one) in self._arrays for one in found)}
        if self._tables:
            database.unchecked = self
            engine.readers.add(self)

    def finish(self) -> None:
        """Check all, before the state changes, or more of it is looked at than rows of views."""
        self.settle(list(self.names))

    def settle(self, names: Iterable[str]) -> None:
        """Check what some views and change tables read. If it has changed, all views are built from their tables."""
        with self._database.lock:
            try:
                for name in names:
                    self.require(name)
            except OperationalError as error:
                self._build_all(error)

    def require(self, name: str) -> None:
        """Check what a view or change table reads. OperationalError if it has changed; the next statement that reads it
        builds it."""
        with self._checking:
            if name in self._tables:
                self.check(self._tables[name])
                del self._tables[name]
                if not self._tables:
                    self._end()

    # Inside --------------------------------------------------------------------------------------

    def _end(self) -> None:
        self._tables = {}  # A thread that has waited for the lock finds nothing more to check.
        self._database.unchecked = None
        self._database.engine.readers.discard(self)

    def _build_all(self, why: OperationalError) -> None:
        """Build all views from their tables, as these are now."""
        database, engine = self._database, self._database.engine
        log.warning("sqlfront: %s: views are built from their tables: %s: %s", database.path, why.what, why.why)
        self._end()
        with suppress(OperationalError):  # All damaged arrays have to be known.
            self.check()
        engine.readers.finish()
        engine.forget_rows(self._damaged.values())
        publish(database, None)
        entries = sorted(database.views.values(), key=lambda entry: entry.scan)
        for entry in reversed(entries):
            database.detach(entry)
        con, database.replaying = database.cursor(), True
        passed = {relation: relation.passed for relation in engine.relations.values()}
        for relation in passed:
            relation.passed = False  # The logs have all rows of tables that keep none: nothing has changed yet.
        try:
            self._fill_tables(con)
            _build(database, con, entries)
        finally:
            database.replaying = False
            for relation, former in passed.items():
                relation.passed = former
            for entry in entries:
                if entry.maintained.name not in engine.views:
                    database.give_up(entry, "its build was not completed when a damaged snapshot had been found")
            con.close()
            database.changed()

    def _fill_tables(self, con: Any) -> None:
        """Fill the damaged tables that keep the rows of change tables from their logs."""
        database, damaged = self._database, {id(table) for table in self._damaged.values()}
        for table in database.change_tables.values():
            name = database.relation_key(table.name)
            base = database.engine.relations[name].base
            if base is not None and id(base.table) in damaged:
                rows, count = logged_rows(database, con, table), database.log.count(con, table.scan)
                database.engine.fill_table(name, rows, count)


def _build(database: Database, con: Any, entries: Sequence[ViewEntry]) -> None:
    """Build detached views; one that cannot be built is given up."""
    from sqlfront.define.ddl import build_anew

    for number, entry in enumerate(entries, 1):
        if entry.maintained.broken:  # It reads a view that could not be built.
            continue
        with database.progress.watch(f"rebuilding {number} of {len(entries)} views, {entry.name.name}"):
            try:
                with translated(None):
                    build_anew(database, con, entry)
            except Error as error:
                database.give_up(entry, ": ".join(filter(None, (error.what, error.why))))

"""The epoch of a transaction: the state of the views that belongs to DuckDB's own snapshot of the tables.

Views go on with each epoch, and DuckDB's snapshot of a transaction stays. A view *has moved on* when others have
changed one of its tables since the transaction began: its rows and the tables' would be of different epochs. DuckDB
then answers the view's query in its own snapshot (older_reads.py). Where DuckDB cannot, reading the view raises
StaleRead.

Invariant: a view that has not moved on is that of DuckDB's snapshot. The state is noted before the snapshot begins, so
a view may count as moved on too early, never too late. `pin` begins the snapshot before the first view is read, as a
read without DuckDB would begin none.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any

from sqlfront.database.names import shown
from sqlfront.storage.errors import StaleRead

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry
    from sqlfront.maintenance.view.maintained_view import MaintainedView


class Snapshot:
    """The views as they were just before DuckDB fixed what a transaction sees of the tables, for all its statements.

    Taken under the lock, after other writers' changes have been taken in. `rebound` are the views whose tables the
    transaction itself has renamed or replaced.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.rebound: set[tuple[str, str]] = set()
        self._views, self._changes = ({}, {}) if database.keeps_nothing else self._state(database)
        self._is_pinned = False
        self._found: tuple[tuple[int, int], Set[str]] = (-1, -1), frozenset()

    @staticmethod
    def _state(database: Database) -> tuple[dict[str, MaintainedView], dict[str, int]]:
        """The views, and how often each captured table has changed."""
        relations = database.engine.relations
        tables = {database.relation_key(table) for table in database.capture.tables()}
        return dict(database.engine.views), {table: relations[table].changes for table in tables & relations.keys()}

    def pin(self, con: Any) -> None:
        """Let DuckDB's snapshot begin, if it has not: from now on `con` sees no later commit. Under the lock."""
        if not self._is_pinned:
            con.execute("SELECT txid_current()").fetchall()
            self._is_pinned = True

    def moved_on(self) -> Set[str]:
        """The views, as the engine calls them, that have moved on."""
        database = self._database
        version = database.engine.epoch, database.revision
        if self._found[0] != version:
            entries = database.views.values()
            self._found = version, {entry.maintained.name for entry in entries if self._newer(entry)}
        return self._found[1]

    def refuse_newer(self, entry: ViewEntry) -> None:
        """StaleRead if a view is not that of the transaction's tables: the transaction has replaced one, or as
        `refuse_changed`."""
        if entry.name.key in self.rebound:
            raise StaleRead(
                f"materialized view {shown(entry.name)} is older than what this transaction sees of its tables",
                why="the transaction has renamed or replaced a table that the view reads",
                hint="COMMIT first: it builds the view anew",
            )
        self.refuse_changed(entry)

    def refuse_changed(self, entry: ViewEntry) -> None:
        """StaleRead if a view has moved on: others have changed its tables, or it was built since.

        Change tables are not DuckDB's: there, every statement sees the last epoch.
        """
        if newer := self._newer(entry):
            raise StaleRead(
                f"materialized view {shown(entry.name)} is newer than what this transaction sees of its tables",
                why=f"{newer} after the transaction had begun to read",
                hint="ROLLBACK, and run the transaction again; outside transactions a statement sees the last epoch",
            )

    def is_newer(self, name: str) -> bool:
        """Whether others have changed a captured table, as the engine calls it."""
        if name not in self._changes:
            return False
        relation = self._database.engine.relations.get(name)
        return relation is None or relation.changes != self._changes[name]

    def _newer(self, entry: ViewEntry) -> str:
        """What has happened to a view or its tables since; empty if nothing has."""
        from sqlfront.maintenance.epoch import shown_relation

        if self._database.engine.views.get(entry.maintained.name) is not self._views.get(entry.maintained.name):
            return "the view was built"
        newer = sorted(shown_relation(name) for name in entry.tables if self.is_newer(name))
        return f"{', '.join(newer)} changed" if newer else ""

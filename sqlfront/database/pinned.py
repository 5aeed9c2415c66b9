"""The epoch of a transaction: the state of the views that belongs to DuckDB's own snapshot of the tables.

Views go on with each epoch, and DuckDB's snapshot of a transaction stays. A view *has moved on* when others have
changed one of its tables since the transaction began: its rows and the tables' would be of different epochs. DuckDB
then answers the view's query in its own snapshot (older_reads.py). Where DuckDB cannot, the view is *rewound*: the
changes since are undone under the engine's lock, the statement is read whole, and the changes are redone.

Invariant: the epoch is that of DuckDB's snapshot, which begins under the same hold of the engine's lock. After a
commit that went past us in between, nothing is rewound: it is in DuckDB's snapshot, and not in the views.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlfront.database.names import shown
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.storage.errors import StaleRead

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ChangeTable, ViewEntry
    from sqlfront.maintenance.engine import Change, Engine
    from sqlfront.maintenance.kept_changes import Pin
    from sqlfront.maintenance.relation.base_relation import Relation


class Snapshot:
    """The tables and clocks as they were when DuckDB fixed what a transaction sees, for all its statements.

    Taken under the lock, after other writers' changes have been taken in. `rebound` are the views whose tables the
    transaction itself has renamed or replaced, `wanted` the relations that the next whole read needs rewound.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.rebound: set[tuple[str, str]] = set()
        self.is_ahead = False  # Whether DuckDB's snapshot has a commit that went past us, and the views do not.
        self.wanted: Set[str] = frozenset()
        self._is_pinned, self._rewound = False, frozenset[str]()
        self._found: tuple[tuple[int, int], Set[str]] = (-1, -1), frozenset()
        self._relations: dict[str, tuple[Relation, int, int]] = {}
        self._pin: Pin | None = None
        if not database.keeps_nothing:
            relations = database.engine.relations
            base = {name: one for name, one in relations.items() if one.is_base}
            self._relations = {name: (one, one.changes, len(one.columns)) for name, one in base.items()}
            self._pin = database.engine.kept.pin(database.engine.epoch)

    def pin(self, con: Any) -> None:
        """Let DuckDB's snapshot begin, if it has not: from now on `con` sees no later commit. Under the lock."""
        if not self._is_pinned:
            con.execute("SELECT txid_current()").fetchall()
            self._is_pinned = True
            capture = self._database.capture
            if not self._database.is_alone and capture.tables() and capture.look(con)[1]:
                self._pin, self.is_ahead = None, True

    def moved_on(self) -> Set[str]:
        """The views and change tables, as the engine calls them, that have moved on."""
        database = self._database
        version = database.engine.epoch, database.revision
        if self._found[0] != version:
            found = {database.relation_key(table.name) for table in database.change_tables.values()}
            found = set(filter(self.is_newer, found))
            for entry in database.views.values():
                if any(map(self.is_newer, sources(entry))):
                    found.add(entry.maintained.name)
            self._found = version, found
        return self._found[1]

    def can_rewind(self, relations: Collection[str]) -> bool:
        """Whether relations can be rewound: they are those of the transaction's epoch, and the changes are kept."""
        return self._pin is not None and not self._pin.lost and not any(map(self._is_another, relations))

    def undone(self) -> dict[str, Change]:
        """The changes that rewind the wanted relations."""
        if self._pin is None:
            return {}
        wanted = [self._relations[name][0] for name in filter(self.is_newer, self.wanted)]
        return self._database.engine.kept.since(self._pin, wanted)

    @contextmanager
    def rewound(self) -> Iterator[None]:
        """The wanted relations are rewound, for a read to its end."""
        self._rewound = frozenset(self.wanted)
        try:
            yield
        finally:
            self._rewound = frozenset()

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
        """StaleRead if a view has moved on and is not rewound."""
        self._refuse(f"materialized view {shown(entry.name)}", sources(entry))

    def refuse_changed_table(self, table: ChangeTable) -> None:
        """As `refuse_changed`, of a change table."""
        self._refuse(f"change table {shown(table.name)}", {self._database.relation_key(table.name)})

    def is_newer(self, name: str) -> bool:
        """Whether others have changed a relation, as the engine calls it, and it is not rewound."""
        if name in self._rewound:
            return False
        return self._is_another(name) or self._relations[name][0].changes != self._relations[name][1]

    def _is_another(self, name: str) -> bool:
        """Whether a relation was made since: it was not there, or had other columns."""
        known = self._relations.get(name)
        found = self._database.engine.relations.get(name)
        return found is None or known is None or known[0] is not found or known[2] != len(found.columns)

    def _refuse(self, what: str, relations: Collection[str]) -> None:
        from sqlfront.maintenance.epoch import shown_relation

        newer = sorted(filter(self.is_newer, relations))
        if not newer:
            return
        why = f"{', '.join(map(shown_relation, newer))} changed after the transaction had begun to read"
        if self._pin is not None and self._pin.lost:
            age = self._database.engine.epoch - self._pin.epoch
            taken = f"{self._pin.lost / 2**20:,.0f} MiB"
            why += f", and the changes of {age} epochs since take {taken}, beyond {self._pin.limit}"
        elif any(map(self._is_another, newer)):
            why += ": it was captured or created anew"
        raise StaleRead(
            f"{what} is newer than what this transaction sees of its tables",
            why=why,
            hint="ROLLBACK, and run the transaction again; outside transactions a statement sees the last epoch",
        )


def sources(entry: ViewEntry) -> set[str]:
    """The base relations that a view reads, itself or through views: tables and clocks."""
    from sqlfront.database.view_time import clocks_of
    from sqlfront.maintenance.clocks import clock_relation

    return {*entry.tables, *map(clock_relation, clocks_of(entry, entry.definition, entry.sources))}


@contextmanager
def for_a_read(engine: Engine, changes: Mapping[str, Change], deferred: Collection[str]) -> Iterator[None]:
    """The state with changes in it, of the deferred views these, for a read to its end: an epoch that is undone."""
    applied = None
    try:
        if changes:
            with Uninterrupted(), engine.deferred.at_once(deferred):
                applied = engine.apply(changes)
        yield
    finally:
        if applied is not None:
            engine.undo_whole(applied)

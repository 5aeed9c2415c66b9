"""What is looked at before every read: are our triggers alive, has anyone written past us?

A trigger has an oid that no other ever gets while the database is open, so the three triggers of a
table prove that it was captured without a gap exactly as long as their oids are ones we created.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from sqlfront.storage.capture.prepared import ask
from sqlfront.storage.capture.trigger_sql import (
    SCHEMA,
    TRIGGERS,
    Captured,
    QualifiedName,
    alive_query,
    foreign_query,
    stored_query,
)
from sqlfront.storage.errors import OperationalError

OIDS_REMEMBERED = 3 * 1024  # per table: a transaction that began more upserts ago than a third of it is not trusted


class Watch:
    """The oids of the triggers we made, by table, and the two queries over all captured tables.

    `alone`: at the last look no trigger was there but ours. Only then may a write tell by RETURNING what it changes:
    the user's triggers could change more. Since the last look such writes have been `untold` by our triggers. `looked`:
    no statement since the last look may have made a trigger.
    """

    def __init__(self, database: str) -> None:
        self.database = database
        self._made: dict[tuple[str, str], deque[int]] = {}
        self._table: dict[int, tuple[str, str]] = {}
        self.alone = self.looked = self.untold = False
        self.set([])

    def set(self, captures: Iterable[Captured]) -> None:
        """From now on watch these tables; a delta table may be gone where we have made no triggers: it is not read."""
        trusted = [captured for captured in captures if self._made.get(captured.table.key)]
        self._foreign, self._deltas = foreign_query(self.database, trusted), len(trusted)

    def remember(self, table: QualifiedName, oids: Iterable[int]) -> None:
        """Trust these triggers. Older ones stay trusted: other transactions, and ROLLBACK, still show them."""
        made = self._made.setdefault(table.key, deque())
        for oid in oids:
            made.append(oid)
            self._table[oid] = table.key
        while len(made) > OIDS_REMEMBERED:
            del self._table[made.popleft()]

    def foreign(self, con: Any) -> bool:
        """Whether a delta table holds changes of other transactions."""
        return bool(self._look(con, self._foreign))

    def broken(self, con: Any, captures: Sequence[Captured]) -> list[QualifiedName]:
        """Those of the tables whose triggers are not all alive."""
        return self._without(con.execute(alive_query(self.database)).fetchall(), captures)

    def look(self, con: Any, captures: Sequence[Captured]) -> tuple[list[QualifiedName], bool]:
        """`broken` and `foreign` at once; one query as long as nothing is wrong."""
        rows = self._look(con, f"{alive_query(self.database)} UNION ALL {stored_query(self.database)}")
        oids = [row for row in rows if row[0] > 0]
        if len(rows) - len(oids) < self._deltas:
            self.foreign(con)  # Which tells what is gone.
        broken, strangers = self._without(oids, captures), any(oid not in self._table for (oid,) in oids)
        if strangers and self.untold:  # What the user's triggers have changed in untold writes is not known.
            broken = [captured.table for captured in captures]
        self.alone, self.looked, self.untold = not strangers, True, False
        return broken, not broken and (0,) in rows and self.foreign(con)

    def _without(self, rows: Sequence[tuple[int]], captures: Sequence[Captured]) -> list[QualifiedName]:
        alive = Counter(self._table.get(oid) for (oid,) in rows)
        return [captured.table for captured in captures if alive[captured.table.key] != len(TRIGGERS)]

    def _look(self, con: Any, query: str) -> list[Any]:
        import duckdb

        try:
            return ask(con, query)
        except duckdb.CatalogException as error:
            raise OperationalError(
                "views cannot be trusted: captured changes may have been lost",
                where=f"schema {SCHEMA} of database {self.database}",
                why=f"a table of ours is gone: {error}",
                hint="REFRESH MATERIALIZED VIEW rebuilds a view from its tables",
            ) from error

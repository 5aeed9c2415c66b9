"""Transactions: private changes until COMMIT, then views and DuckDB change together or not at all.

The trees hold committed state. A transaction's changes are kept aside (captured rows in DuckDB's own
transaction, changes of change tables here); a read inside it applies them under the engine's lock,
reads to the end, and takes them back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from maintenance.engine import Change
from sqlfront.database import ChangeTable, Database

if TYPE_CHECKING:
    import pyarrow as pa

    from maintenance.epoch import Epoch


class Transaction:
    """What one cursor has changed since BEGIN (or in the current statement, in autocommit)."""

    def __init__(self, database: Database, con: Any) -> None:
        self._database, self._con = database, con
        self._tables: dict[str, list[tuple[pa.Table, np.ndarray]]] = {}
        self._truncated: dict[str, ChangeTable] = {}
        self._written = False
        self.epoch: Epoch | None = None

    def touch(self) -> None:
        """Note that a captured table may have been written."""
        self._written = True

    def touched(self) -> bool:
        """Whether the transaction may have changes of its own."""
        return self._written or bool(self._tables)

    def add_batch(self, table: ChangeTable, rows: Any, weights: np.ndarray | None) -> None:
        """Note changes of a change table, as they come from outside."""
        import pyarrow as pa

        rows = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        self.add(table, rows, np.ones(rows.num_rows, np.int64) if weights is None else weights)

    def add(self, table: ChangeTable, rows: pa.Table, weights: np.ndarray) -> None:
        """Note changes of a change table."""
        self._tables.setdefault(self._database.relation_key(table.name), []).append((rows, weights))

    def truncated(self, table: ChangeTable) -> None:
        """Note that a lost change table starts again from empty."""
        self._truncated[self._database.relation_key(table.name)] = table

    def changes(self) -> dict[str, Change]:
        """All changes so far, per relation of the engine: captured rows and change tables' rows."""
        import pyarrow as pa

        found = {}
        for relation, (rows, weights) in captured(self._database, self._con, own=True).items():
            found[relation] = Change(rows, weights)
        for relation, parts in self._tables.items():
            rows = pa.concat_tables([rows for rows, _ in parts]) if len(parts) > 1 else parts[0][0]
            found[relation] = Change(rows, np.concatenate([weights for _, weights in parts]))
        return found

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The views with this transaction's changes in them, for a read to its end; the caller holds the lock."""
        engine = self._database.engine
        changes = self.changes() if self.touched() else {}
        applied = engine.apply(changes) if changes else None
        try:
            yield
        finally:
            if applied is not None:
                engine.undo(applied)

    def commit(self) -> Epoch | None:
        """Apply everything to all views, COMMIT in DuckDB, publish; or undo and roll back, raising the cause."""
        database, con = self._database, self._con
        with database.engine.lock:
            committed = False
            applied = None
            try:
                changes = self.changes()
                if changes:
                    applied = database.engine.apply(changes)
                    database.capture.consume(con, database.capture.pending(con, own=True))
                con.execute("COMMIT")
                committed = True
            finally:
                if not committed:
                    if applied is not None:
                        database.engine.undo(applied)
                    rollback(con)
            for table in self._truncated.values():
                table.lost = None
            for relation in self._tables:
                database.engine.relations[relation].passed = True
            self.epoch = database.engine.commit(applied) if applied is not None else None
            return self.epoch


def rollback(con: Any) -> None:
    """ROLLBACK, if DuckDB still has a transaction open (a refused COMMIT has ended it already)."""
    import duckdb

    try:
        con.execute("ROLLBACK")
    except duckdb.TransactionException as error:
        if "no transaction is active" not in str(error):
            raise


def captured(database: Database, con: Any, *, own: bool) -> dict[str, tuple[pa.Table, np.ndarray]]:
    """Captured rows of ordinary tables as this cursor's transaction sees them, in the relations' column order."""
    if not database.capture.tables():
        return {}
    con.execute("SET SESSION arrow_lossless_conversion = true")
    try:
        pending = database.capture.pending(con, own=own)
    finally:
        con.execute("RESET SESSION arrow_lossless_conversion")
    found = {}
    for name, rows in pending.tables.items():
        relation = database.engine.relations[database.relation_key(name)]
        weights = rows.column("_weight").to_numpy().astype(np.int64)
        by_name = {column.casefold(): column for column in rows.column_names}
        columns = [by_name[column.name.casefold()] for column in relation.columns if column.name.casefold() in by_name]
        found[relation.name] = (rows.select(columns), weights)
    return found


def catch_up(database: Database, con: Any) -> None:
    """Take in what writers that bypassed us have committed, as one epoch. In an open transaction of `con`.

    Raises OperationalError when a table can no longer be followed.
    """
    if not database.capture.tables() or not database.capture.check(con):
        return
    pending = database.capture.pending(con, own=False)
    changes = {
        relation: Change(rows, weights) for relation, (rows, weights) in captured(database, con, own=False).items()
    }
    with database.engine.lock:
        applied = database.engine.apply(changes)
        try:
            database.capture.consume(con, pending)
        except BaseException:
            database.engine.undo(applied)
            raise
        database.engine.commit(applied)


def catch_up_now(database: Database) -> None:
    """`catch_up` in a transaction of its own, before a read in autocommit."""
    if not database.capture.tables():
        return
    with database.engine.lock:
        con = database.reader_cursor()
        if not database.capture.check(con):
            return
        con.execute("BEGIN")
        try:
            catch_up(database, con)
        except BaseException:
            rollback(con)
            raise
        con.execute("COMMIT")
        database.capture.compact(con)

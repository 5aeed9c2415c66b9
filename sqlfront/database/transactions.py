"""Transactions: private changes until COMMIT, then views and DuckDB change together or not at all.

The trees hold committed state. A transaction's changes are kept aside (captured rows in DuckDB's own
transaction, changes of change tables here); a read inside it applies them under the engine's lock,
reads to the end, and takes them back.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sqlfront.database.database import Database
from sqlfront.database.durable import compact_logs, log_changes, log_epoch
from sqlfront.database.entries import ChangeTable, ViewEntry
from sqlfront.database.failures import logged
from sqlfront.database.pinned import Snapshot, for_a_read
from sqlfront.database.user_settings import lossless, restore
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.storage.errors import DataError, Error, OperationalError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from sqlfront.maintenance.engine import Change, Engine
    from sqlfront.maintenance.epoch import Applied, Epoch

    Rows: TypeAlias = pa.Table | Sequence[Sequence[Any]]


class Rebinding(Protocol):
    """What a transaction has done to tables under views, which COMMIT builds anew (define/rebinding.py)."""

    tables: set[tuple[str, str]]
    """The captured tables, as committed, whose changes are not captured any more."""

    @property
    def views(self) -> list[ViewEntry]: ...
    def build(self, con: Any, undo: ExitStack) -> None: ...
    def publish(self) -> None: ...
    def restore(self) -> None: ...


_READING = ("begin", "select", "commit", "rollback")


class Transaction:
    """What one cursor has changed since BEGIN (or in the current statement, in autocommit). It `only_reads` until a
    statement that may do more is noted."""

    def __init__(self, database: Database, con: Any, *, only_reads: bool = False) -> None:
        self._database, self._con, self._only_reads = database, con, only_reads
        self._tables: dict[str, list[tuple[pa.Table, np.ndarray]]] = {}
        self._truncated: dict[str, ChangeTable] = {}
        self._changed: dict[str, ChangeTable] = {}
        self._offsets: dict[tuple[int, str], Any] = {}
        self._written = False
        self.plans: dict[str, Any] = {}  # Those that the session remembered at BEGIN.
        self.scans: dict[str, object] = {}  # Those that were bound at BEGIN.
        self._times: dict[str, int] = {}
        self.writing = 0.0  # The seconds that statements which write have taken.
        self.defines = False  # Whether plain views or macros may have been defined in it.
        self.epoch: Epoch | None = None
        self.snapshot: Snapshot | None = None
        self.rebinding: Rebinding | None = None

    def look(self) -> None:
        """Note, before its first statement, which state of the views is that of the transaction's tables."""
        database = self._database
        if self.snapshot is None:
            with database.lock:
                if database.unseen or not database.is_alone:
                    self._catch_up()
                taken = Snapshot(database)
                taken.pin(self._con)
                self.snapshot = taken
                if taken.is_ahead:  # Then the views have moved on.
                    self._catch_up()

    def touch(self) -> None:
        """Note that a captured table may have been written."""
        self._written = True

    def note(self, kind: str) -> None:
        """Note a statement of this kind: whether it may do more than read."""
        self._only_reads = self._only_reads and kind in _READING

    def only_reads(self) -> bool:
        """Whether it has nothing to commit."""
        return self._only_reads and not (self.touched() or self._offsets or self._truncated or self.rebinding)

    def touched(self) -> bool:
        """Whether the transaction may have changes of its own."""
        return self._written or bool(self._tables) or bool(self._times)

    def advance(self, clock: str, time: int) -> None:
        """Let a clock go on to a time with this transaction. ProgrammingError if it would go back."""
        self._database.engine.clocks.refuse_past(clock, time, self._times.get(clock))
        self._times[clock] = time

    def has_changed(self, relation: str) -> bool:
        """Whether the transaction has changes of this change table."""
        return relation in self._tables

    def add(self, table: ChangeTable, rows: pa.Table | pa.RecordBatch, weights: np.ndarray | None) -> None:
        """Note changes of a change table. DataError if a value does not fit its column; nothing is noted then."""
        import numpy as np

        name = self._database.relation_key(table.name)
        rows = self._database.engine.relations[name].as_declared(rows)
        weights = np.ones(rows.num_rows, np.int64) if weights is None else weights
        self._tables.setdefault(name, []).append((rows, weights))
        self._changed[name] = table

    def note_offset(self, table: ChangeTable, source: str, position: Any) -> None:
        """Note how far a change table follows a source with this transaction; `position` is any JSON value."""
        self._offsets[table.scan, source] = position

    def truncated(self, table: ChangeTable) -> None:
        """Note that a lost change table starts again from empty."""
        self._truncated[self._database.relation_key(table.name)] = table

    def changes(self, *, consume: bool = False) -> dict[str, Change]:
        """All changes so far, per relation of the engine; `consume` takes captured rows out of DuckDB, for COMMIT."""
        without = () if self.rebinding is None else self.rebinding.tables
        found = captured(self._database, self._con, own=True, consume=consume, without=without)
        for clock, moment in self._times.items():
            found |= self._database.engine.clocks.change(clock, moment)
        return found | _joined(self._tables) if self._tables else found

    @contextmanager
    def applied(self, deferred: Collection[str] = ()) -> Iterator[None]:
        """The views as this transaction sees them, of the deferred ones these, for which nothing waits: rewound to its
        epoch where that is asked for (Snapshot.rewound), and with its own changes. For a read to its end. The caller
        holds the lock.

        A table that others have changed and that is not rewound stays as it is: no view over it is read."""
        from sqlfront.maintenance.clocks import clock_relation

        engine, snapshot = self._database.engine, self.snapshot
        undone = {} if snapshot is None else snapshot.undone()
        with nullcontext() if snapshot is None else snapshot.rewound():
            own = self.changes() if self.touched() else {}
            if snapshot is not None:
                own = {name: change for name, change in own.items() if not snapshot.is_newer(name)}
            clocks = set(map(clock_relation, self._times))  # Their change begins at the present time.
            both = own.keys() & undone.keys() - clocks
            # One epoch: a reader of changes knows the rows of the last committed one.
            parts = {name: [_declared(engine, name, one[name]) for one in (undone, own)] for name in both}
            with for_a_read(engine, undone | own | _joined(parts), deferred):
                yield

    def commit_told(self, relation: str, rows: Rows, weights: Sequence[int], *, returned: bool) -> None:
        """`commit` of one statement whose changes of one table are known, as it `returned` them or as triggers have
        captured them."""
        database, applied = self._database, None
        with database.lock, Uninterrupted() as signals:
            check_all(database)
            started = ending = time.perf_counter()
            with committing(self._con) as undo:
                if len(rows):
                    applied = apply_first(database, relation, rows, weights)
                    undo.callback(database.engine.undo, applied)
                    log_epoch(database, undo, {relation: (rows, weights)})
                    applied.work.took("writing in DuckDB", self.writing)
                    ending = time.perf_counter()
                signals.check()
            if applied is not None:
                applied.work.took("COMMIT", time.perf_counter() - ending)
                if returned:
                    database.capture.note_returned()
                self.epoch = database.engine.commit(applied, started - self.writing)
                database.note_epoch()

    def commit(self, *, alone: bool = False) -> Epoch | None:
        """Apply everything to all views, COMMIT in DuckDB, publish; or undo and roll back, raising the cause. `alone`:
        one statement has changed change tables, and nothing else."""
        database, con, applied = self._database, self._con, None
        if self.only_reads():
            with committing(con):
                _refuse_aborted(con)
            return None
        with database.lock, Uninterrupted() as signals, self._rebound():
            check_all(database)
            started = ending = time.perf_counter()
            with committing(con) as undo:
                if not alone:
                    catch_up(database)
                    _refuse_aborted(con)
                changes = _joined(self._tables) if alone else self.changes(consume=True)
                if changes:
                    captured = time.perf_counter() - started
                    applied = database.engine.apply(changes)
                    undo.callback(database.engine.undo, applied)
                    log_epoch(database, undo, {name: (one.rows, one.weights) for name, one in changes.items()})
                    applied.work.took("writing in DuckDB", self.writing)
                    applied.work.took("reading captured changes", captured)
                    ending = time.perf_counter()
                if self.rebinding is not None and self.snapshot is not None:
                    for entry in self.rebinding.views:
                        self.snapshot.refuse_changed(entry)
                    self.rebinding.build(con, undo)
                rows_logged = self._log(changes)
                signals.check()
            for table in self._truncated.values():
                table.lost = None
            for relation in self._tables:
                database.engine.relations[relation].passed = True
            if applied is not None:
                applied.work.took("COMMIT", time.perf_counter() - ending)
                self.epoch = database.engine.commit(applied, started - self.writing)
            database.note_epoch()
            database.offsets |= self._offsets
            for number, rows in rows_logged.items():
                database.log.note_appended(number, rows)
            if rows_logged:
                with logged(database.path, "a log of a change table stays as long as it is"):  # COMMIT is done.
                    compact_logs(database, now=False)
            return self.epoch

    @contextmanager
    def _rebound(self) -> Iterator[None]:
        """Let the views that COMMIT builds anew take their places after the body, or bring back the others."""
        try:
            yield
        except BaseException:
            if self.rebinding is not None:
                self.rebinding.restore()
            raise
        if self.rebinding is not None:
            self.rebinding.publish()

    def _catch_up(self) -> None:
        with suppress(Error):  # A read of a view raises it again; ROLLBACK must not.
            catch_up(self._database)

    def _log(self, changes: dict[str, Change]) -> dict[int, int]:
        """Write what changes in durable tables, and their sources' offsets, in the transaction that commits them."""
        database = self._database
        if not (self._changed or self._offsets):
            return {}
        epoch = database.engine.epoch + 1
        logged = log_changes(database, self._con, self._changed, changes, epoch)
        durable = {table.scan for table in database.change_tables.values() if table.durable}
        for (number, source), position in self._offsets.items():
            if number in durable:
                database.log.note_offset(self._con, number, source, position, epoch)
        return logged


def _declared(engine: Engine, name: str, change: Change) -> tuple[pa.Table, np.ndarray]:
    """The rows of a change in the types of its relation, and their weights."""
    assert change.weights is not None
    return engine.relations[name].as_declared(change.rows), change.weights


def _joined(tables: Mapping[str, list[tuple[pa.Table, np.ndarray]]]) -> dict[str, Change]:
    """The changes of each change table as one."""
    import numpy as np
    import pyarrow as pa

    from sqlfront.maintenance.engine import Change

    return {
        relation: Change(pa.concat_tables([rows for rows, _ in parts]), np.concatenate([w for _, w in parts]))
        for relation, parts in tables.items()
    }


@contextmanager
def transaction(con: Any) -> Iterator[ExitStack]:
    """A DuckDB transaction around the body: BEGIN, and then as `committing`."""
    con.execute("BEGIN")
    with committing(con) as undo:
        yield undo


@contextmanager
def committing(con: Any) -> Iterator[ExitStack]:
    """COMMIT the open transaction after the body; if either fails, roll back.

    The stack takes what undoes the body's changes outside DuckDB (`undo.callback`), last first, before the ROLLBACK.
    """
    with ExitStack() as undo:
        undo.callback(rollback, con)
        yield undo
        con.execute("COMMIT")
        undo.pop_all()


def rollback(con: Any) -> None:
    """ROLLBACK, if DuckDB still has a transaction open (a refused COMMIT has ended it already)."""
    import duckdb

    try:
        con.execute("ROLLBACK")
    except duckdb.TransactionException as error:
        if "no transaction is active" not in str(error):
            raise
    restore(con)


def captured(
    database: Database, con: Any, *, own: bool, consume: bool, without: Collection[tuple[str, str]] = ()
) -> dict[str, Change]:
    """Captured rows of ordinary tables as the transaction of `con` sees them, in the relations' column order; `without`
    some tables."""
    chosen = [name for name in database.capture.tables() if name.key not in without]
    tables = [name for name in chosen if database.relation_key(name) in database.engine.relations]
    if not tables:
        return {}
    from sqlfront.maintenance.engine import Change
    from sqlfront.storage.codecs.arrow_batches import numbers_of

    if consume:
        read = database.capture.take(con, tables, own=own, within=partial(lossless, con))
    else:
        with lossless(con):
            read = database.capture.pending(con, tables, own=own).tables
    found = {}
    for name, rows in read.items():
        relation = database.engine.relations[database.relation_key(name)]
        weights = numbers_of(rows.column("_weight"))
        place = {column.casefold(): i for i, column in enumerate(rows.column_names)}
        columns = [rows.column(place[column.name.casefold()]) for column in relation.columns]
        names = [column.name for column in relation.columns]
        found[relation.name] = Change(rows.from_arrays(columns, names=names), weights)
    return found


def apply_first(database: Database, relation: str, rows: Rows, weights: Sequence[int]) -> Applied:
    """Apply the changes of a table before those that other writers have committed, unless they do not fit without: a
    deleted row may be one of these."""
    import numpy as np

    from sqlfront.maintenance.engine import Change

    engine = database.engine
    if isinstance(rows, Sequence):
        apply = partial(engine.apply_few, relation, rows, weights)
    else:
        apply = partial(engine.apply, {relation: Change(rows, np.asarray(weights, np.int64))})
    try:
        return apply()
    except Error:
        catch_up(database)
        return apply()


def _refuse_aborted(con: Any) -> None:
    """Raise in a transaction that an error has aborted, whose COMMIT would be a silent ROLLBACK."""
    import duckdb

    try:
        con.execute("SELECT 1").fetchall()
    except duckdb.TransactionException as error:
        raise OperationalError(
            "the transaction has been rolled back instead of committed",
            why="a statement in it failed, and DuckDB keeps nothing of such a transaction",
            hint="run its statements again, without the one that failed",
        ) from error


def check_all(database: Database) -> None:
    """Check what a snapshot has of views that nobody has read yet: more than the rows of some views is needed."""
    unchecked = database.unchecked  # Another thread may end it meanwhile.
    if unchecked is not None:
        unchecked.finish()


def catch_up(database: Database) -> None:
    """Take in what writers that bypassed us have committed, as one epoch, in a transaction of its own.

    Views that cannot follow, because the triggers are gone or they cannot take a row, are given up: reading them
    raises. One query when nobody has bypassed us.
    """
    if not database.capture.tables():
        return
    with database.lock, Uninterrupted():
        con = database.reader_cursor()
        broken, foreign = database.capture.look(con)
        for table in broken:
            why = (
                f"the triggers that capture the changes of {table} were dropped, or the table itself, "
                "or other triggers were made past sqlfront"
            )
            for entry in database.readers(table):
                database.give_up(entry, why)
        if foreign:
            check_all(database)  # Before captured rows are taken: a build takes them, too.
            _take_foreign(database, con)
            database.capture.compact(con)


def _take_foreign(database: Database, con: Any) -> None:
    with transaction(con) as undo:
        changes = captured(database, con, own=False, consume=True)
        applied = _apply_foreign(database, changes)
        if applied is not None:
            undo.callback(database.engine.undo, applied)
            log_epoch(database, undo, {name: (one.rows, one.weights) for name, one in changes.items()})
    if applied is not None:
        database.engine.commit(applied)
        database.note_epoch()


def _apply_foreign(database: Database, changes: Mapping[str, Change]) -> Applied | None:
    """Apply the changes of tables. Views that cannot take them are given up, all that read the tables if it is not
    known which; None if nothing is left that reads them."""
    from sqlfront.maintenance.relation.bad_rows import view_of

    while left := {name: change for name, change in changes.items() if name in database.engine.relations}:
        try:
            return database.engine.apply(left)
        except Error as error:
            followed = [entry for entry in database.views.values() if not entry.maintained.broken]
            readers = [entry for entry in followed if entry.tables & set(left)]
            named = error.views if isinstance(error, DataError) else frozenset()
            failing = [entry for entry in readers if view_of(entry.maintained.name) in named] or readers
            if not failing:
                raise
            where = f", {' '.join(error.where.split())}" if error.where else ""
            for entry in failing:
                database.give_up(entry, f"changes made past sqlfront do not fit: {error.what}{where}")
    return None

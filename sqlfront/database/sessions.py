"""The state of one connection: what every handler of a statement takes.

A session has a DuckDB cursor of its own, and with it a transaction, a result that is being fetched, and the scans of
views that are registered in that cursor. `Connection` is a thin DB-API face over it.
One thread at a time may use a session; `database` is shared by all sessions of a file.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlfront.database.concern import Concern, concerning, naming
from sqlfront.database.database import Database
from sqlfront.database.entries import ChangeTable, ViewEntry
from sqlfront.database.failures import translated
from sqlfront.database.held_result import HeldResult, HeldRows, Served
from sqlfront.database.names import Key
from sqlfront.database.open_result import hold_rest
from sqlfront.database.running.forks import refused
from sqlfront.database.running.streams import Stream
from sqlfront.database.scans import Passing, ReadSession, unbind
from sqlfront.database.transactions import Transaction, catch_up, rollback
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.sql.recognise import hides_names, words
from sqlfront.sql.remembered import follow
from sqlfront.storage.capture.trigger_sql import tell
from sqlfront.storage.errors import InterfaceError, StaleRead

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.pinned import Snapshot
    from sqlfront.maintenance.epoch import RowFastPath
    from sqlfront.sql.statements import PassThrough


Reads: TypeAlias = Callable[[Set[str]], Set[str]]
"""Of some views, as the engine calls them, those that a statement may read."""
NOTHING: Reads = frozenset[str]().intersection
_ENDED = 0
"""In place of the sessions whose last statement has ended: one look of any session sees what they have written."""


class Session:
    """`reading` is the epoch of the current statement's scans, `again` the query to run again for a whole read.

    `scans` are the objects that registered names scan, or the views for which DuckDB answers, `gates` the fast paths of
    apply_row, `unread` all rows of a view before DuckDB reads them; `tables`, `meant`, `settings`, `defaults` and
    `plans` (read/short_reads.py) remember what names mean, until `forget_names`. While `passing`, no scan may begin.
    `is_ending`: DuckDB may have a transaction of the running statement alone; of the last one, if that was cut short.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.duck = database.cursor()
        follow(self.duck)
        self.transaction = None
        self.reading: ReadSession | None = None
        self.again: tuple[PassThrough | str, Any] | None = None
        self.passing = self.is_ending = False
        self.tables: dict[str, ChangeTable] = {}
        self.meant: dict[tuple[str, ...], tuple[set[Key], Key]] = {}
        self.plans: dict[str, Any] = {}
        self.defaults: Any = None
        self.unread: Any = None
        self.scans: dict[str, object] = {}
        self.served: Served | None = None
        self._told: bool | None = False
        self.revision, self.closed, self.has_result = -1, False, False
        self._reads_on = self._is_inherited = False
        self._lost: Exception | None = None
        self._naming: tuple[tuple[int, int], dict[str, Set[str] | None]] = (-1, -1), {}
        self._concerning: tuple[tuple[int, int], Concern] = (-1, -1), Concern(None, None)
        self._streams: weakref.WeakSet[Stream] | None = None
        database.enter(self)

    @property
    def transaction(self) -> Transaction | None:
        """The open transaction; what is applied within goes into it, not through the gates."""
        return self._transaction

    @transaction.setter
    def transaction(self, transaction: Transaction | None) -> None:
        self._transaction = transaction
        self.gates: dict[str, RowFastPath] = {}

    # Statements ----------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self.closed:
            raise refused() if self._is_inherited else InterfaceError("the connection is closed", hint="connect again")

    def ready(self, *, writes: bool = True) -> None:
        """Refuse a closed connection, drop an unread result, bind the scans of new views. `writes`: what follows may
        change tables, or what captures their changes, without telling."""
        self.check_open()
        if writes:
            self.database.unseen.add(id(self))
        with translated(None):
            if self.is_ending and self.transaction is None:  # Else the statement takes rows of a relation.
                self._end_cut_short()
            if self.transaction is not None:
                self.transaction.look()
            if self.has_result:
                self.end_result()
            self._end_served()
            if self.revision != self.database.revision:
                self.duck.abort()  # A statement of ours may have left a result, which would be in the way.
                with self.database.lock, Uninterrupted():
                    self.bind_scans()

    def is_unconcerned(self, text: str) -> bool:
        """Whether a plain query or write concerns nothing of ours."""
        if self.database.keeps_nothing:
            return True
        names = self._concern().names
        return names is not None and names.isdisjoint(words(text))

    def reads_nothing(self, text: str) -> bool:
        """Whether a write names nothing by which it could read a view or change table; see `scanned`."""
        reads = self._concern().reads
        return reads is not None and not hides_names(text) and reads.isdisjoint(words(text))

    def tell(self, told: bool) -> None:
        """Whether the triggers pass over what this session writes from now on, as its statements tell their changes
        themselves; in a transaction of the user's they never do."""
        if self._told is not told:
            self._told = None  # Until it is known that the statement below has run.
            self.duck.execute(tell(told))
            self._told = told

    def set_count(self, rows: int) -> None:
        """Leave the number of rows that a write has changed as the result."""
        self.set_rows(HeldRows(self.duck, (("Count", "BIGINT"),), [(rows,)]))

    def set_rows(self, rows: HeldRows) -> None:
        """Leave Python values as the result to be fetched."""
        self.has_result = True
        self.served = rows

    def set_result(self, table: pa.Table) -> None:
        """Leave an Arrow table as the result to be fetched."""
        self.has_result = True
        self.served = HeldResult(self.duck, table)

    def forget_names(self) -> None:
        """Look names up again: the catalog or the search path may have changed, or the connection is closed."""
        self.gates, self.tables, self.meant, self.plans = {}, {}, {}, {}
        self.defaults = None

    def close(self) -> None:
        """End the session; an open transaction is rolled back."""
        if self.closed:
            return
        self.end_result()
        self._end_served()
        if self.transaction is not None:
            rollback(self.duck)
            self.transaction = self.reading = None
        self.duck.close()
        self.closed = True
        self.forget_names()
        self.settle()
        self.database.leave(self)

    def settle(self) -> None:
        """Note that a statement has ended: what it has written is committed, unless it writes while it is fetched."""
        fetched = not self.has_result or self.served is not None or self.again is not None
        if fetched and self.transaction is None and id(self) in self.database.unseen:
            self.database.unseen.add(_ENDED)
            self.database.unseen.discard(id(self))

    def let_go(self) -> Any:
        """In a forked child: be closed, without closing DuckDB's cursor, which is given."""
        self.closed = self._is_inherited = True
        self.served = self.transaction = None
        self.forget_names()
        return self.duck

    @contextmanager
    def in_transaction(self, commit: Callable[[Transaction], object] = Transaction.commit) -> Iterator[Transaction]:
        """The open transaction, or one for the body alone, which ends as `commit` does it."""
        if self.transaction is not None:
            self.transaction.touch()
            yield self.transaction
            return
        self.tell(False)
        try:
            transaction = self.begin_ending()
            yield transaction
        except BaseException:
            self.transaction = None
            rollback(self.duck)
            raise
        self.transaction = None
        commit(transaction)
        self.is_ending = False

    def begin_ending(self) -> Transaction:
        """Begin a transaction that ends with its statement. The caller rolls back if anything fails."""
        self.is_ending = True
        self.duck.begin()
        self.transaction = transaction = Transaction(self.database, self.duck)
        return transaction

    def _end_cut_short(self) -> None:
        """Roll back what a statement has left in DuckDB: Ctrl-C came where no handler of the statement could."""
        with Uninterrupted():
            rollback(self.duck)
            self.is_ending = False

    # Reading -------------------------------------------------------------------------------------

    def reads_of(self, text: str | None) -> Reads:
        """The views that a statement may read, among given ones; None is a text that is not known."""
        return partial(self._read_by, text)

    def _read_by(self, text: str | None, views: Set[str]) -> Set[str]:
        if not views or text is None or hides_names(text):
            return views
        version = self.database.revision, self.database.definitions
        if self._naming[0] != version:
            database = self.database
            named = {entry.maintained.name: entry.name.name for entry in database.views.values()}
            named |= {database.relation_key(one.name): one.name.name for one in database.change_tables.values()}
            found = naming(database, self.duck, set(named.values()))
            self._naming = version, {relation: found[name] for relation, name in named.items()}
        used, words_of = words(text), self._naming[1]
        return {view for view in views if (names := words_of.get(view)) is None or not names.isdisjoint(used)}

    def start_reading(self, reads: Reads = NOTHING, *, alone: bool = False, whole: bool = False) -> None:
        """Begin the reading of a statement under the lock, after taking in what other writers have committed, and what
        waits for the views that it `reads`. The reading `alone`, made ready as what does not write, looks for nothing
        if all sessions have told what they wrote. `whole`: it is read to its end under this hold of the lock."""
        database = self.database
        if database.views or database.change_tables:
            snapshot = None if self.transaction is None else self.transaction.snapshot  # It knows no later commit.
            if snapshot is None and not alone:
                catch_up(database)
            elif snapshot is None and (database.unseen or not database.is_alone):
                database.unseen.difference_update((id(self), _ENDED))  # Before: another may end while this one looks.
                catch_up(database)
            if late := self._late(reads):
                from sqlfront.database.view_time import bring_up_to_date

                bring_up_to_date(self, late)
            if snapshot is not None:
                self._read_in(snapshot, reads, whole)
            self.reading = self._new_reading()
        else:
            self.reading = None

    def _late(self, reads: Reads) -> Set[str]:
        """The views that a statement reads and that have to be brought up to date before (view_time.py)."""
        if self.database.keeps_nothing:
            return frozenset()
        from sqlfront.database.view_time import late_views

        return reads(late_views(self.database))

    def _read_in(self, snapshot: Snapshot, reads: Reads, whole: bool) -> None:
        """Let a statement read the transaction's epoch of what has moved on."""
        snapshot.pin(self.duck)
        snapshot.wanted = frozenset()
        if moved := reads(snapshot.moved_on()):
            from sqlfront.database.older_reads import read_older

            read_older(self, snapshot, moved, whole=whole)

    def is_rewound(self) -> bool:
        """Whether the statement whose reading has begun has to be read whole (`reading_own`), in an older epoch."""
        snapshot = None if self.transaction is None else self.transaction.snapshot
        return snapshot is not None and bool(snapshot.wanted)

    def has_moved_on(self, entry: ViewEntry) -> bool:
        """Whether a view is newer than what the open transaction sees of its tables."""
        return self.is_newer(entry.maintained.name)

    def is_newer(self, name: str) -> bool:
        """As `has_moved_on`, of a view or change table as the engine calls it."""
        snapshot = None if self.transaction is None else self.transaction.snapshot
        return snapshot is not None and name in snapshot.moved_on()

    @contextmanager
    def reading_own(self, reads: Reads = NOTHING) -> Iterator[None]:
        """Read to the end, under the lock, with the transaction's own changes in the views, late ones if read."""
        with self.database.lock:
            self.start_reading(reads, whole=True)
            with nullcontext() if self.transaction is None else self.transaction.applied(self._late(reads)):
                self.reading = self._new_reading()
                with self.reading.holding():
                    yield
            self.reading = self._new_reading()

    def fetching(self) -> AbstractContextManager[None]:
        """Fetch from DuckDB's result, in the epoch of its statement."""
        self.check_open()
        if not self.has_result:
            raise InterfaceError("there is no result to fetch", hint="execute a query first")
        if self._lost is not None:
            raise self._lost
        return translated(self.reading_error) if self.reading is None else self._fetching(self.reading)

    @contextmanager
    def _fetching(self, reading: ReadSession) -> Iterator[None]:
        with translated(self.reading_error), reading.holding():
            yield

    def stream(self, reader: pa.RecordBatchReader) -> Stream:
        """A lazy result, which ends when the session goes on to another statement."""
        stream = Stream(reader, self.fetching)
        self._streams = weakref.WeakSet() if self._streams is None else self._streams
        self._streams.add(stream)
        return stream

    def read_on(self) -> None:
        """Note that the result is read off the views while it is fetched: before they change, `finish` is called."""
        self._reads_on = True
        self.database.engine.readers.add(self)

    def finish(self) -> None:
        """Hold the rest of the result, as the views are about to change; perhaps in another thread. A query whose rows
        nobody has asked for yet runs again instead, but not in a transaction."""
        if self.again is None or self.transaction is not None:
            self._lost = hold_rest(self)
            self._reads_on = False

    def streams(self) -> list[Stream]:
        """The open streams of the result."""
        return list(self._streams or ())

    def end_result(self) -> None:
        """Let go of a result that may not have been read to its end, and of a rest that another thread has read."""
        with self.held_reading() if self._reads_on else nullcontext():  # Its scans go on until they are told.
            self._end_streams()
            self.duck.abort()
            if self._reads_on:
                self.database.engine.readers.discard(self)
            self._end_served()
            self._reads_on, self._lost = False, None
            self.has_result, self.again, self.unread = False, None, None

    def is_behind(self) -> bool:
        """Whether the views have changed since the reading of the result began."""
        return self.reading is not None and self.reading.version != self.database.engine.version

    def current_reading(self) -> ReadSession:
        self.reading = self.reading or self._new_reading()
        return self.reading

    def scanned(self) -> ReadSession:
        """The reading of a scan that begins. StaleRead if its statement should read nothing of ours, but that of a
        transaction without changes: it needs no more than the reading."""
        if self.passing and (self.transaction is None or self.transaction.touched()):
            self.database.definitions += 1
            self.database.macros = None
            self.reading = self._new_reading()
            self.reading.error = StaleRead(
                "a materialized view or change table is read by another name, which this transaction did not know",
                why="the catalog was changed by a connection that is not sqlfront's",
                hint="ROLLBACK, and run the transaction again",
            )
            raise self.reading.error
        return self.current_reading()

    def held_reading(self) -> AbstractContextManager[None]:
        """The statement's reading, held; nothing where there are no views to read."""
        return nullcontext() if self.reading is None else self.reading.holding()

    def reading_finder(self) -> Callable[[], ReadSession]:
        """`scanned` for scans, which must not keep alive the session that keeps them."""
        reference = weakref.ref(self)

        def find() -> ReadSession:
            session = reference()
            if session is None:
                raise InterfaceError("the connection is gone", hint="keep it while you read from it")
            return session.scanned()

        return find

    def passing_over(self) -> AbstractContextManager[None]:
        """Run what should read nothing of ours: see `scanned`."""
        return Passing(self)

    def reading_error(self) -> BaseException | None:
        return None if self.reading is None else self.reading.error

    def hide_scans(self) -> None:
        """Take the scans out of this cursor's catalog until the next statement."""
        import duckdb

        with suppress(duckdb.TransactionException):  # An aborted transaction fails by its own error.
            for name in self.scans:
                unbind(self.duck, name)
            self.scans, self.revision = {}, -1

    def _new_reading(self) -> ReadSession:
        return self.database.session(None if self.transaction is None else self.transaction.snapshot)

    def bind_scans(self) -> None:
        """Register the views that are new or built anew, and let go of the scans of those that are not there any more,
        narrowed ones (lookups.py) included."""
        import duckdb

        from sqlfront.database.stored_views import registrations

        found = () if self.database.keeps_nothing else registrations(self.database, self.reading_finder())
        wanted = {one.name: one for one in found}
        try:
            for name in self.scans.keys() - wanted.keys():
                unbind(self.duck, name)
            for name, one in wanted.items():
                if self.scans.get(name) is not one.scanned:
                    one.bind(self.duck)
        except duckdb.TransactionException as error:
            if "aborted" not in str(error):
                raise
            return  # Only ROLLBACK is possible now; the next statement comes here again.
        self.scans = {name: one.scanned for name, one in wanted.items()}
        self.forget_names()
        self.revision = self.database.revision

    def _concern(self) -> Concern:
        """What a text can concern. Asks the catalog after what may have changed it."""
        import duckdb

        version = self.database.revision, self.database.definitions
        if self._concerning[0] != version:
            try:
                self._concerning = version, concerning(self.database, self.duck)
            except duckdb.TransactionException:  # An aborted transaction fails by its own error.
                return Concern(None, None)
        return self._concerning[1]

    def _end_served(self) -> None:
        if self.served is not None:
            self.served.close()
            self.served = None

    def _end_streams(self) -> None:
        if self._streams is not None:
            for stream in list(self._streams):
                stream.close()
            self._streams = None

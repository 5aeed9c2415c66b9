"""The public surface: `connect` and `Connection`, a DuckDB connection that also keeps materialized views."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from sqlfront import dispatch
from sqlfront.database.database import ChangeTable, Database
from sqlfront.database.failures import expect_copy, require_pandas, translated
from sqlfront.database.names import Key, name_parts
from sqlfront.database.scans import ReadSession
from sqlfront.database.streams import Stream
from sqlfront.database.transactions import Transaction, catch_up, rollback
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.sql.dialects import to_duckdb
from sqlfront.sql.statements import PassThrough, parse_statement
from sqlfront.storage.errors import InterfaceError, ProgrammingError, StaleRead

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

    from sqlfront.explain.explanation import Explanation
    from sqlfront.feeds.feed_cursor import FeedCursor
    from sqlfront.held_result import HeldResult
    from sqlfront.maintenance.epoch import Epoch, RowGate
    from sqlfront.relation import Relation
    from sqlfront.view import View


_open: weakref.WeakSet[Connection] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close what the program has left open, and let go of DuckDB's objects while its module is still there."""
    for connection in list(_open):
        connection.close()
        del connection._duck, connection._database


def connect(database: str = ":memory:", *, config: Mapping[str, Any] | None = None) -> Connection:
    """Open a DuckDB database, in memory or in a file, and bring its materialized views back.

    `config` is handed to DuckDB; with access_mode = 'READ_ONLY' views are read and nothing is written.
    Connections of one process to one file share its views.
    Raises OperationalError if the file cannot be opened.
    """
    with translated(None):
        return Connection(Database.open(str(database), config))


class Connection:
    """A cursor on a database: DuckDB's SQL and ours, DB-API 2.0, Arrow and DataFrames.

    One thread at a time may use a connection; `cursor()` gives another to the same database, with its own transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._duck = database.root.cursor()
        self._transaction = None
        self._session: ReadSession | None = None
        self._again: tuple[PassThrough, Any] | None = None
        self._tables: dict[str, ChangeTable] = {}
        self._meant: dict[tuple[str, ...], tuple[set[Key], Key]] = {}
        self._scans: set[str] = set()
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._revision, self._closed, self._has_result = -1, False, False
        database.enter(self)
        _open.add(self)
        self._served: FeedCursor | HeldResult | None = None

    # SQL -----------------------------------------------------------------------------------------

    def execute(
        self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None, *, dialect: str | None = None
    ) -> Connection:
        """Run one or more statements; the last one's result is fetched from this object.

        `params` are bound to the last statement; `dialect` "spark" takes one statement as Spark writes it.
        Errors are sqlfront.Error's; a failing statement changes nothing.
        """
        self._check_open()
        statements = parse_statement(sql if dialect is None else to_duckdb(sql, dialect))
        for statement in statements:
            self._ready()
            last = statement is statements[-1]
            with translated(self._session_error):
                dispatch.run(self, statement, params if last else None)
        return self

    def executemany(self, sql: str, parameter_sets: Iterable[Any]) -> Connection:
        """Run one statement with each set of parameters, as one epoch."""
        self._ready()
        statements = parse_statement(sql)
        if len(statements) != 1:
            raise ProgrammingError("executemany takes one statement", hint="use execute for several")
        with translated(self._session_error):
            dispatch.run(self, statements[0], list(parameter_sets), many=True)
        return self

    def sql(self, query: str) -> Relation:
        """A lazy relation over a query: it runs again at each read."""
        from sqlfront.relation import Relation

        self._check_open()
        return Relation(self, query)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row of the result, or None."""
        if self._served is not None:
            return self._served.fetchone()
        self._again = None
        with self._reading():
            return self._duck.fetchone()

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows of the result, at most `size`."""
        if self._served is not None:
            return self._served.fetchmany(size)
        self._again = None
        with self._reading():
            return self._duck.fetchmany(size)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All remaining rows, of one epoch; of SUBSCRIBE, what has changed since the last fetch."""
        return self._served.fetchall() if self._served is not None else self._whole(self._duck.fetchall)

    def df(self) -> pandas.DataFrame:
        """All remaining rows as a pandas DataFrame. InterfaceError without pandas."""
        require_pandas()
        return self._served.df() if self._served is not None else self._whole(self._duck.df)

    fetchdf = df

    def to_arrow_table(self) -> pa.Table:
        """All remaining rows as an Arrow table."""
        return self._served.to_arrow_table() if self._served is not None else self._whole(self._arrow_table)

    def to_arrow_reader(self, batch_size: int = 131072) -> pa.RecordBatchReader:
        """The remaining rows as a lazy stream of record batches, pinned to its epoch (StaleRead)."""
        import pyarrow as pa

        if self._served is not None:
            return self._served.to_arrow_table().to_reader(batch_size)
        again, self._again = self._again, None
        with self._reading():
            if again is not None:
                reader = dispatch.stream(self, *again, batch_size)
            else:
                expect_copy()
                reader = self._duck.to_arrow_reader(batch_size)
        stream = Stream(reader, self._reading)
        self._streams.add(stream)
        return pa.RecordBatchReader.from_batches(reader.schema, stream.batches())

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name and type of each result column, as DB-API 2.0 says; None without a result."""
        if self._served is not None:
            return self._served.description
        return self._duck.description if self._has_result else None

    @property
    def rowcount(self) -> int:
        """-1: the number of rows of a result is not known before it is fetched."""
        return self._duck.rowcount if self._served is None else -1

    # Changes -------------------------------------------------------------------------------------

    def apply(self, changes: Mapping[str, Any]) -> Epoch | None:
        """Apply changes of several tables as one atomic epoch.

        `changes` maps table names to Arrow data (`__arrow_c_stream__`: pyarrow, pandas, polars, DuckDB relations)
        with the table's columns by name and perhaps `_weight` (signed multiplicities) or `_change_type`
        (insert, delete, update_preimage, update_postimage). Rows are netted: their order does not matter.
        Within BEGIN the changes join the transaction and None is returned.
        Raises IntegrityError when a row would be there a negative number of times; nothing is changed then.
        O(changes * the update cost of each view).
        """
        if self._gates and changes and type(changes) is dict:
            epoch = self._database.engine.apply_batches(changes, self._gates)
            if epoch is not None:
                return epoch
        from sqlfront.write import apply

        self._ready()
        with translated(self._session_error):
            return apply.apply(self, changes)

    def apply_row(self, table: str, row: Sequence[Any], weight: int = 1) -> int | None:
        """Apply one row (values in the table's column order) as one epoch; returns the epoch's number.

        The low-latency path into change tables: no SQL, no Arrow. On ordinary tables it writes through DuckDB.
        Within BEGIN the row joins the transaction and None is returned.
        """
        gate = self._gates.get(table)
        if gate is not None:
            number = gate.run(row, weight)
            if number is not None:
                return number
        from sqlfront.write import apply

        self._ready()
        with translated(self._session_error):
            return apply.apply_row(self, table, row, weight)

    def register_changes(
        self, table: str, source: Any, *, shape: str = "auto", version: str | None = None, name: str | None = None,
        checkpoint: str | None = None, trigger: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Give a change table a source of changes, and take in what it has. Returns the Epoch, or None without news.

        `source`: a Spark DataFrame, a stream or iterable of Arrow tables (each is an epoch), or a ChangeSource of
        sqlfront.storage.outside.sources. `shape`: plain, weight, change_type, debezium; auto goes by the columns.
        `version`: a column that grows with each commit, for REFRESH CHANGE TABLE. Offsets are kept under `name`. A
        streaming DataFrame needs a durable table and a `checkpoint`; its StreamingQuery is returned.
        """
        from sqlfront.feeds.table_sources import register_changes

        self._ready()
        with translated(self._session_error):
            return register_changes(
                self, table, source, shape=shape, version=version, name=name, checkpoint=checkpoint,
                trigger=dict(trigger) if trigger else None,
            )  # fmt: skip

    # Views ---------------------------------------------------------------------------------------

    def explain(self, view_or_sql: str, *, shards: int | None = None) -> Explanation:
        """How a view is maintained, or a SELECT would be: shape, strategy, cost, reason, tree; and how in `shards`."""
        from sqlfront.explain.explanation import explain

        self._ready()
        with translated(None):
            return explain(self._database, self._duck, view_or_sql, shards)

    def view(self, name: str) -> View:
        """A handle on a materialized view: count, membership, rows, state, cost."""
        from sqlfront.view import View

        self._ready()
        with translated(None):
            return View(self, self._database.view(self._duck, name_parts(name)))

    # Transactions and life ------------------------------------------------------------------------

    def begin(self) -> Connection:
        """BEGIN."""
        return self.execute("BEGIN")

    def commit(self) -> Connection:
        """COMMIT the open transaction, if there is one."""
        return self.execute("COMMIT") if self._transaction is not None else self

    def rollback(self) -> Connection:
        """ROLLBACK the open transaction, if there is one."""
        return self.execute("ROLLBACK") if self._transaction is not None else self

    def cursor(self) -> Connection:
        """Another connection to the same database, with its own transaction."""
        self._check_open()
        return Connection(self._database)

    def register(self, name: str, data: Any) -> Connection:
        """Give Arrow data or a DataFrame a name in this connection's SQL."""
        self._ready()
        self._forget_names()
        self._duck.register(name, data)
        return self

    def unregister(self, name: str) -> Connection:
        """Take a name given by `register` away."""
        self._duck.unregister(name)
        return self

    def interrupt(self) -> None:
        """Stop the running statement; may be called from another thread."""
        self._duck.interrupt()

    def close(self) -> None:
        """End the connection; an open transaction is rolled back."""
        if self._closed:
            return
        self._end_streams()
        self._end_served()
        if self._transaction is not None:
            rollback(self._duck)
            self._transaction = None
        self._duck.close()
        self._closed = True
        self._forget_names()
        self._database.leave(self)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Inside --------------------------------------------------------------------------------------

    @property
    def _transaction(self) -> Transaction | None:
        """The open transaction; what is applied within goes into it, not through the gates."""
        return self._open_transaction

    @_transaction.setter
    def _transaction(self, transaction: Transaction | None) -> None:
        self._open_transaction = transaction
        self._gates: dict[str, RowGate] = {}

    def _ready(self) -> None:
        """Refuse a closed connection, drop an unread result, bind the scans of new views."""
        self._check_open()
        self._end_served()
        if self._transaction is not None:
            self._transaction.look()
        if self._has_result:
            self._end_streams()
            self._duck.abort()
            self._has_result, self._again = False, None
        if self._revision != self._database.revision:
            with self._database.engine.lock, Uninterrupted():
                self._bind_scans()

    def _bind_scans(self) -> None:
        """Register what views there are, and let go of the others' scans, narrowed ones (lookups.py) included."""
        import duckdb

        scans = dict(self._database.scans(self._session_finder()))
        try:
            for name in self._scans - scans.keys():
                self._duck.unregister(name)
            for name, scan in scans.items():
                self._duck.register(name, scan)
        except duckdb.TransactionException as error:
            if "aborted" not in str(error):
                raise
            return  # Only ROLLBACK is possible now; the next statement comes here again.
        self._scans = set(scans)
        self._forget_names()
        self._revision = self._database.revision

    def _end_served(self) -> None:
        if self._served is not None:
            self._served.close()
            self._served = None

    def _hide_scans(self) -> None:
        """Take the scans out of this cursor's catalog until the next statement."""
        import duckdb

        with suppress(duckdb.TransactionException):  # An aborted transaction fails by its own error.
            for name in self._scans:
                self._duck.unregister(name)
            self._scans, self._revision = set(), -1

    def _end_streams(self) -> None:
        for stream in list(self._streams):
            stream.close()
        self._streams.clear()

    def _forget_names(self) -> None:
        """Look names up again: the catalog or the search path may have changed, or the connection is closed."""
        self._gates, self._tables, self._meant = {}, {}, {}

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed", hint="sqlfront.connect again")

    def _session_finder(self) -> Callable[[], ReadSession]:
        """`_current_session` for scans, which must not keep alive the connection that keeps them."""
        reference = weakref.ref(self)

        def find() -> ReadSession:
            connection = reference()
            if connection is None:
                raise InterfaceError("the connection is gone", hint="keep it while you read from it")
            return connection._current_session()

        return find

    def _current_session(self) -> ReadSession:
        self._session = self._session or self._new_session()
        return self._session

    def _new_session(self) -> ReadSession:
        return self._database.session(None if self._transaction is None else self._transaction.snapshot)

    def _session_error(self) -> BaseException | None:
        return None if self._session is None else self._session.error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._check_open()
        if not self._has_result:
            raise InterfaceError("there is no result to fetch", hint="execute a query first")
        with translated(self._session_error):
            if self._session is None:
                yield
            else:
                with self._session.holding():
                    yield

    def _whole(self, fetch: Callable[[], Any]) -> Any:
        """All rows under the lock. When another has committed since `execute`, the query runs again first."""
        again, self._again = self._again, None
        with self._database.engine.lock:
            try:
                with self._reading():
                    return fetch()
            except StaleRead:
                if again is None or self._transaction is not None:
                    raise
            self._duck.abort()
            with translated(self._session_error):
                dispatch.read(self, *again)
            self._again = None
            with self._reading():
                return fetch()

    def _arrow_table(self) -> pa.Table:
        expect_copy()
        return self._duck.to_arrow_table()

    def _start_reading(self) -> None:
        """Begin the read session of a statement, after taking in what other writers have committed."""
        database = self._database
        if database.views or database.change_tables:
            catch_up(database)
            self._session = self._new_session()
        else:
            self._session = None

    @contextmanager
    def _reading_own(self) -> Iterator[None]:
        """Read to the end, under the lock, with the transaction's own changes in the views."""
        with self._database.engine.lock:
            self._start_reading()
            with nullcontext() if self._transaction is None else self._transaction.applied():
                self._session = self._new_session()
                with self._session.holding():
                    yield
            self._session = self._new_session()

"""The public surface: `connect` and `Connection`, a DuckDB connection that also keeps materialized views."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from sqlfront import dispatch, short_ways, transaction_statements
from sqlfront.database import arguments
from sqlfront.database.database import Database
from sqlfront.database.failures import expect_copy, polars_frame, require_pandas, translated
from sqlfront.database.names import name_parts, view_named
from sqlfront.database.sessions import Session
from sqlfront.fetching import describe, fetch_all, fetch_arrow, fetch_some
from sqlfront.snapshots.opening import open_file
from sqlfront.sql.dialects import transpiled
from sqlfront.sql.statements import parse_statement
from sqlfront.storage.errors import ProgrammingError
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

    from sqlfront.explain.explanation import Explanation
    from sqlfront.maintenance.epoch import Epoch
    from sqlfront.relation import Relation
    from sqlfront.view import View
    from sqlfront.write.apply_each import Epochs

_open: weakref.WeakSet[Connection] = weakref.WeakSet()
_APPENDED = "__sqlfront_appended"


@atexit.register
def _close_all() -> None:
    """Close what the program has left open, and let go of DuckDB's objects while its module is still there."""
    for connection in list(_open):
        connection.close()
        del connection.session.duck, connection.session.database


def connect(
    database: str | os.PathLike[str] = ":memory:", read_only: bool = False, *, config: Mapping[str, Any] | None = None
) -> Connection:
    """Open a DuckDB database, in memory or in a file (its path), and bring its materialized views back.

    `config` is handed to DuckDB; with `read_only` (or access_mode = 'READ_ONLY') views are read and nothing is written.
    Connections of one process to one file share its views.
    Raises OperationalError if the file cannot be opened, InterfaceError for an argument of another kind.
    """
    with translated(None):
        settings = arguments.options(config, "config") | (
            {"access_mode": "READ_ONLY"} if arguments.whole(read_only, "read_only") else {}
        )
        return Connection(Database.open(arguments.path_text(database), settings, open_file))


class Connection:
    """A cursor on a database: DuckDB's SQL and ours, DB-API 2.0, Arrow and DataFrames.

    One thread at a time may use a connection; `cursor()` gives another to the same database, with its own transaction.
    `session` is what other parts of sqlfront take; applications have no use for it.
    """

    def __init__(self, database: Database) -> None:
        self.session = Session(database)
        self.spare: list[Connection] = []  # The cursor of the last read of a relation.
        self.running: list[Connection] = []  # The cursors of the reads of relations that are under way.
        _open.add(self)

    # SQL -----------------------------------------------------------------------------------------

    def execute(
        self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None, *, dialect: str | None = None
    ) -> Connection:
        """Run one or more statements; the last one's result is fetched from this object.

        `params` are bound to the last statement; `dialect` ("spark", "postgres", "snowflake", ...) takes one statement
        as that system writes it.
        Errors are sqlfront.Error's; a failing statement changes nothing.
        """
        session = self.session
        session.check_open()
        text = sql if dialect is None else self._translated(sql, arguments.text(dialect, "dialect"))
        with translated(session.reading_error):
            if short_ways.run(session, text, params):
                return self
            statements = parse_statement(text)
            for statement in statements:
                session.ready(writes=transaction_statements.writes(session, statement))
                dispatch.run(session, statement, params if statement is statements[-1] else None)
            session.settle()
        return self

    def _translated(self, sql: str, dialect: str) -> str:
        """A statement of another dialect in DuckDB's words, understood by the columns that tables have here."""

        def columns(table: str) -> dict[str, str]:
            # Of tables of one name in several schemas, only what has one type in all: another one is not known.
            asked = (
                "SELECT column_name, any_value(data_type) FROM duckdb_columns() WHERE lower(table_name) = lower(?) "
                "GROUP BY column_name HAVING count(DISTINCT data_type) = 1"
            )
            return dict(self.session.duck.execute(asked, [table]).fetchall())

        return transpiled(sql, dialect, columns)

    def executemany(self, sql: str, parameter_sets: Iterable[Any]) -> Connection:
        """Run one statement with each set of parameters, as one epoch."""
        self.session.ready()
        sets = arguments.several(parameter_sets, "parameter_sets")
        with translated(self.session.reading_error):
            if short_ways.run(self.session, sql, sets, many=True):
                return self
            statements = parse_statement(sql)
            if len(statements) != 1:
                raise ProgrammingError("executemany takes one statement", hint="use execute for several")
            dispatch.run(self.session, statements[0], sets, many=True)
            self.session.settle()
        return self

    def sql(self, query: str) -> Relation | Any:
        """A lazy relation over a query: it runs again at each read. Any other statement runs once, now: its rows
        (RETURNING, CALL, EXECUTE) come as a relation that holds them, and without rows None is returned."""
        from sqlfront.relation import related

        self.session.check_open()
        return related(self, query)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row of the result, or None."""
        row: tuple[Any, ...] | None = fetch_some(self.session, methodcaller("fetchone"))
        return row

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows of the result, at most `size`."""
        rows: list[tuple[Any, ...]] = fetch_some(self.session, methodcaller("fetchmany", size))
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All remaining rows, of one epoch; of SUBSCRIBE, what has changed since the last fetch."""
        rows: list[tuple[Any, ...]] = fetch_all(self.session, methodcaller("fetchall"))
        return rows

    def df(self) -> pandas.DataFrame:
        """All remaining rows as a pandas DataFrame. InterfaceError without pandas."""
        require_pandas()
        return fetch_all(self.session, methodcaller("df"))

    fetchdf = df

    def pl(self) -> Any:
        """All remaining rows as a polars DataFrame. InterfaceError without polars."""
        return polars_frame(self.to_arrow_table())

    def fetchnumpy(self) -> dict[str, Any]:
        """All remaining rows as numpy arrays by column, masked where there are NULLs."""
        columns: dict[str, Any] = fetch_all(self.session, methodcaller("fetchnumpy"))
        return columns

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The remaining rows, one after the other."""
        while (row := self.fetchone()) is not None:
            yield row

    def to_arrow_table(self) -> pa.Table:
        """All remaining rows as an Arrow table."""
        return fetch_arrow(self.session)

    def to_arrow_reader(self, batch_size: int = 131072) -> pa.RecordBatchReader:
        """The remaining rows as a lazy stream of record batches, all of one epoch.

        Before others change what it reads, the rest is read into memory: StaleRead if that is beyond memory_limit.
        """
        import pyarrow as pa

        session, served = self.session, self.session.served
        if served is not None:
            return served.to_arrow_table().to_reader(batch_size)
        again, session.again = session.again, None
        with session.fetching():
            if session.served is not None:  # Another thread has read the rest meanwhile.
                return session.served.to_arrow_table().to_reader(batch_size)
            if again is not None:
                stream = dispatch.stream(session, *again, batch_size)
            else:
                expect_copy()
                stream = session.stream(self.session.duck.to_arrow_reader(batch_size))
        return pa.RecordBatchReader.from_batches(stream.schema, stream.batches())

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name and type of each result column, as DB-API 2.0 says; None without a result."""
        return describe(self.session)

    @property
    def rowcount(self) -> int:
        """-1: the number of rows of a result is not known before it is fetched."""
        return self.session.duck.rowcount if self.session.served is None else -1

    # Changes -------------------------------------------------------------------------------------

    def append(self, table: str, data: Any, *, by_name: bool = False) -> Connection:
        """Insert Arrow data or a DataFrame into a table, its columns by position or by name: one INSERT."""
        import duckdb

        name = ".".join(quote(part) for part in name_parts(arguments.text(table, "table")))
        if not hasattr(data, "__arrow_c_stream__"):
            raise ProgrammingError(
                f"{type(data).__name__} cannot be appended",
                why="append takes tables of Arrow, pandas or polars",
                hint="INSERT INTO ... VALUES with executemany takes rows",
            )
        self.register(_APPENDED, data)
        try:
            return self.execute(f"INSERT INTO {name}{' BY NAME' if by_name else ''} SELECT * FROM {_APPENDED}")
        finally:
            with suppress(duckdb.TransactionException):  # Of an aborted transaction, which takes the name along.
                self.session.duck.unregister(_APPENDED)

    def apply(self, changes: Mapping[str, Any]) -> Epoch | None:
        """Apply changes of several tables as one atomic epoch.

        `changes` maps table names to Arrow data (`__arrow_c_stream__`: pyarrow, pandas, polars, DuckDB relations)
        with the table's columns by name and perhaps `_weight` (signed multiplicities) or `_change_type`
        (insert, delete, update_preimage, update_postimage). Rows are netted: their order does not matter.
        Within BEGIN the changes join the transaction and None is returned.
        Raises IntegrityError when a row would be there a negative number of times; nothing is changed then.
        O(changes * the update cost of each view).
        """
        if self.session.gates and changes and type(changes) is dict:
            epoch = self.session.database.engine.apply_batches(changes, self.session.gates)
            if epoch is not None:
                return epoch
        from sqlfront.write import apply

        self.session.ready()
        with translated(self.session.reading_error):
            return apply.apply(self.session, changes)

    def apply_row(self, table: str, row: Sequence[Any], weight: int = 1) -> int | None:
        """Apply one row (values in the table's column order) as one epoch; returns the epoch's number.

        The low-latency path into change tables: no SQL, no Arrow. On ordinary tables it writes through DuckDB.
        Within BEGIN the row joins the transaction and None is returned.
        """
        gate = self.session.gates.get(table) if type(table) is str else None
        if gate is not None:
            number = gate.run(row, weight)
            if number is not None:
                return number
        from sqlfront.write import apply

        self.session.ready()
        with translated(self.session.reading_error):
            return apply.apply_row(self.session, arguments.text(table, "table"), row, weight)

    def apply_each(self, reader: Any, *, table: str, rows: int) -> Epochs | None:
        """Apply a stream of changes of one table, an epoch for every `rows` of them; returns what they were.

        `reader` gives what `apply` takes: Arrow data with the table's columns and perhaps `_weight` or `_change_type`,
        also larger than memory. Each epoch is one `apply`, but the call stays in compiled code from epoch to epoch,
        while no view's changes are subscribed to. An epoch that fails is rolled back alone, and the error names it:
        the epochs before it are committed, the rows behind it are left. Within BEGIN the rows join the transaction.
        """
        from sqlfront.write import apply_each

        self.session.ready()
        name, each = arguments.text(table, "table"), arguments.whole(rows, "rows")
        with translated(self.session.reading_error):
            return apply_each.apply_each(self.session, self.apply, reader, name, each)

    def advance_time(self, moment: Any) -> Epoch | None:
        """Let the manual clock go on, as one epoch. The first call starts it, and returns None. No time comes again."""
        from sqlfront.database.view_time import advance_time

        return advance_time(self.session, moment)

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

        self.session.ready()
        given = {"version": version, "name": name, "checkpoint": checkpoint}
        texts = {key: value if value is None else arguments.text(value, key) for key, value in given.items()}
        with translated(self.session.reading_error):
            return register_changes(
                self.session, table, source, shape=arguments.text(shape, "shape"), **texts,
                trigger=arguments.options(trigger, "trigger") or None,
            )  # fmt: skip

    # Views ---------------------------------------------------------------------------------------

    def explain(self, view_or_sql: str, *, shards: int | None = None) -> Explanation:
        """How a view is maintained, or a SELECT or CREATE MATERIALIZED VIEW would be: shape, strategy, cost, reason,
        tree; and how in `shards`. Nothing is built."""
        from sqlfront.explain.explanation import explain

        self.session.ready(writes=False)
        asked = arguments.text(view_or_sql, "view_or_sql")
        most = shards if shards is None else arguments.whole(shards, "shards")
        with translated(None):
            return explain(self.session.database, self.session.duck, asked, most)

    def view(self, name: str) -> View:
        """A handle on a materialized view: count, membership, rows, state, cost."""
        from sqlfront.view import View

        self.session.ready(writes=False)
        with translated(None):
            return View(self, view_named(self.session, name_parts(name)))

    # Transactions and life ------------------------------------------------------------------------

    def begin(self) -> Connection:
        """BEGIN."""
        return self.execute("BEGIN")

    def commit(self) -> Connection:
        """COMMIT the open transaction, if there is one."""
        return self.execute("COMMIT") if self.session.transaction is not None else self

    def rollback(self) -> Connection:
        """ROLLBACK the open transaction, if there is one."""
        return self.execute("ROLLBACK") if self.session.transaction is not None else self

    def cursor(self) -> Connection:
        """Another connection to the same database, with its own transaction."""
        self.session.check_open()
        return Connection(self.session.database)

    def register(self, name: str, data: Any) -> Connection:
        """Give Arrow data or a DataFrame a name in this connection's SQL. ProgrammingError for other data."""
        self.session.ready()
        self.session.forget_names()
        try:
            with translated(None):
                self.session.duck.register(arguments.text(name, "name"), data)
        except (TypeError, RuntimeError) as error:  # DuckDB's, of an object that it cannot take for a table.
            raise ProgrammingError(
                f"an object of type {type(data).__name__} cannot be registered",
                why=str(error).partition("\n")[0],
                hint="give a pyarrow table or reader, a DataFrame, or a relation",
            ) from error
        return self

    def unregister(self, name: str) -> Connection:
        """Take a name given by `register` away."""
        self.session.check_open()
        with translated(None):
            self.session.duck.unregister(arguments.text(name, "name"))
        return self

    def create_function(
        self, name: str, function: Callable[..., Any], parameters: list[Any] | None = None, return_type: Any = None, *,
        deterministic: bool | None = None, **options: Any,
    ) -> Connection:  # fmt: skip
        """Make a Python function callable in SQL, as DuckDB's create_function does, which takes the other `options`.

        `deterministic` has to be declared: True if equal arguments always give equal results. Statements may call the
        function; a view may not, as nothing in its file says what the function does. ProgrammingError for bad input.
        """
        self.session.ready()
        if not isinstance(deterministic, bool):
            raise ProgrammingError(
                "a function has to declare whether it is deterministic", hint="deterministic=True, or False"
            )
        from sqlfront.binding.function_catalog import PYTHON_FUNCTIONS

        self.session.database.forget_names()
        given = {**options, "side_effects": not deterministic}
        try:
            with translated(None):
                called = arguments.text(name, "name")
                self.session.duck.create_function(called, function, parameters, return_type, **given)
                PYTHON_FUNCTIONS.add(called.lower())
        except (TypeError, ValueError, RuntimeError) as error:  # DuckDB's, of arguments that it cannot take.
            raise ProgrammingError(
                "the function cannot be created",
                why=str(error).partition("\n")[0],
                hint="give a function, a list of DuckDB types and the type of the result",
            ) from error
        return self

    def remove_function(self, name: str) -> Connection:
        """Take a function of `create_function` away."""
        self.session.ready()
        from sqlfront.binding.function_catalog import PYTHON_FUNCTIONS

        with translated(None):
            called = arguments.text(name, "name")
            self.session.duck.remove_function(called)
        PYTHON_FUNCTIONS.discard(called.lower())
        return self

    def query_progress(self) -> float:
        """How far the running statement is, in percent; -1 without one. May be called from another thread."""
        return float(self.session.duck.query_progress())

    def interrupt(self) -> None:
        """Stop the running statement, or read of a relation or of a view's rows; may be called from another thread."""
        for session in (self.session, *(cursor.session for cursor in self.running.copy())):
            session.duck.interrupt()
            if (reading := session.reading) is not None:
                reading.stop()

    def close(self) -> None:
        """End the connection; an open transaction is rolled back."""
        for cursor in self.spare:
            cursor.close()
        self.session.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

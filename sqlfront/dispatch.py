"""One statement at a time: ours to their handlers, DuckDB's to DuckDB, with what views need around it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.database.durable import compact_logs
from sqlfront.database.frames import as_user
from sqlfront.database.loading import forget_settings, lossless
from sqlfront.database.names import require_current
from sqlfront.database.reserved import looks_into_catalog, refuse_reserved, without_reserved
from sqlfront.database.transactions import Transaction, rollback
from sqlfront.define import change_table_ddl, ddl, table_ddl, view_index
from sqlfront.define.options import check_options
from sqlfront.explain import show
from sqlfront.feeds.feed import subscribe
from sqlfront.feeds.table_sources import pull
from sqlfront.held_result import HeldResult
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.read.reads_ours import reads_ours
from sqlfront.sql import statements as own
from sqlfront.sql.statements import PassThrough, Statement
from sqlfront.storage.errors import NotSupportedError, ProgrammingError
from sqlfront.write import dml

if TYPE_CHECKING:
    from sqlfront.connection import Connection

# What surely leaves captured tables as they are. Others may write: EXECUTE, EXPLAIN ANALYZE, CALL.
_QUIET = {"begin", "select", "copy_to", "create_table_as", "show_tables", "describe", "prepare", "attach", "use", "set"}
_WRITES = {"insert", "update", "delete", "merge", "truncate", "copy_from"}


def run(connection: Connection, statement: Statement, params: Any, *, many: bool = False) -> None:
    """Run one statement; its result, if any, is left on the connection."""
    if isinstance(statement, PassThrough):
        try:
            _pass_through(connection, statement, params, many)
        finally:
            if statement.kind in _RENAMES:  # Afterwards: it may have looked names up itself before it changed them.
                connection._forget_names()
                forget_settings()
        return
    if many:
        raise ProgrammingError("executemany takes INSERT, UPDATE, DELETE or MERGE")
    _run_own(connection, statement)


def _run_own(connection: Connection, statement: Statement) -> None:
    database, con = connection._database, connection._duck
    if isinstance(statement, own.RefreshChangeTables):
        pull(connection, [name.parts for name in statement.names])
        return
    if not isinstance(statement, _READS) and connection._transaction is not None:
        raise NotSupportedError(
            "definitions of views and change tables cannot change inside a transaction",
            why="building a view is not part of a transaction",
            hint="COMMIT first",
        )
    if not isinstance(statement, _READS) and database.read_only:
        raise ProgrammingError(
            "definitions of views and change tables cannot change here",
            why=f"{database.path} is open read-only",
            hint="connect without access_mode = 'READ_ONLY'",
        )
    if not isinstance(statement, _READS) or isinstance(statement, own.CheckMaterializedView):
        require_current(database, con)
    match statement:
        case own.CreateMaterializedView():
            ddl.create_view(database, con, statement)
        case own.DropMaterializedView():
            ddl.drop_view(database, con, statement.name, if_exists=statement.if_exists, cascade=statement.cascade)
        case own.RefreshMaterializedView():
            ddl.refresh_view(database, con, statement.name)
        case own.AlterMaterializedView():
            ddl.alter_view(database, con, statement.name, statement.options)
        case own.CreateViewIndex():
            view_index.create_index(database, con, statement)
        case own.DropViewIndex():
            view_index.drop_index(database, con, statement)
        case own.CreateChangeTable():
            change_table_ddl.create_change_table(database, con, statement)
        case own.DropChangeTable():
            change_table_ddl.drop_change_table(
                database, con, statement.name, if_exists=statement.if_exists, cascade=statement.cascade
            )
        case own.Subscribe():
            _subscribe(connection, statement)
        case _:
            _show(connection, statement)


def _subscribe(connection: Connection, statement: own.Subscribe) -> None:
    from sqlfront.feeds.feed_cursor import FeedCursor

    database = connection._database
    with database.engine.lock:
        connection._start_reading()
        entry = database.view(connection._duck, statement.name.parts)
        options = check_options("subscription", statement.options)
        subscription = subscribe(database, entry, **options, lossless=True)
        connection._served = FeedCursor(database, entry.definition, subscription)


def _show(connection: Connection, statement: Statement) -> None:
    with connection._reading_own():
        table = show.show(connection, statement)
    set_result(connection, table)


_READS = (
    own.ShowChangeTables,
    own.ShowMaterializedViews,
    own.ShowState,
    own.ExplainMaterializedView,
    own.ExplainMaterialized,
    own.CheckMaterializedView,
    own.Subscribe,
)


# These can change what a name means.
_RENAMES = {"use", "set", "attach", "ddl", "create_table_as", "execute", "other"}
# These can bring macros.
_MACROS = {"attach", "other"}


def _pass_through(connection: Connection, statement: PassThrough, params: Any, many: bool) -> None:
    kind = statement.kind
    refuse_reserved(statement)
    about_macro = kind == "ddl" and statement.object in ("macro", "function")
    if about_macro or kind in _MACROS:
        connection._database.macros = None
    if kind == "begin":
        connection._session = None
        with Uninterrupted():
            connection._duck.execute(statement.text)
            connection._transaction = Transaction(connection._database, connection._duck)
    elif kind in ("commit", "rollback") and connection._transaction is not None:
        _end(connection, kind)
    elif kind in _WRITES and (key := dml.written_key(connection, statement)) is not None:
        dml.write(connection, statement, key, params, many)
    elif about_macro:
        read(connection, statement, params)
    elif kind == "ddl" and (about_view := view_index.own_statement(connection._database, connection._duck, statement)):
        _run_own(connection, about_view)
    elif kind in ("ddl", "create_table_as") and table_ddl.needs_us(connection, statement):
        table_ddl.alter(connection, statement)
    elif kind == "checkpoint":
        if connection._transaction is None:
            compact_logs(connection._database, now=True)
        read(connection, statement, params)
    elif kind == "show_tables":
        read(connection, without_reserved(statement), None)
    elif many:
        with connection._database.engine.lock:
            connection._start_reading()
            as_user(partial(connection._duck.executemany, statement.text, params))
        connection._has_result = True
    else:
        if kind in ("prepare", "explain") and statement.inner in _WRITES:
            dml.check_indirect(connection, statement)
        read(connection, statement, params)
    if connection._transaction is not None and kind not in _QUIET:
        connection._transaction.touch()


def _end(connection: Connection, kind: str) -> None:
    transaction, connection._transaction = connection._transaction, None
    connection._session, connection._revision = None, -1
    assert transaction is not None
    if kind == "rollback":
        rollback(connection._duck)
    else:
        transaction.commit()


def read(connection: Connection, statement: PassThrough | str, params: Any) -> None:
    """Run a statement that DuckDB executes, perhaps reading views: all its scans see one epoch."""
    database = connection._database
    if database.views or database.change_tables:
        with database.engine.lock:  # Nobody commits between the beginning of the session and its first scans.
            _read_views(connection, statement, params)
    else:
        connection._session = None
        text = statement if isinstance(statement, str) else statement.text
        as_user(partial(connection._duck.execute, text, params))
    connection._has_result = True


def _read_views(connection: Connection, statement: PassThrough | str, params: Any) -> None:
    from sqlfront.read.lookups import narrowed

    connection._start_reading()
    if isinstance(statement, PassThrough) and looks_into_catalog(connection, statement):
        connection._hide_scans()
    transaction = connection._transaction
    inside = transaction is not None and transaction.touched()
    if inside and isinstance(statement, PassThrough) and reads_ours(connection, statement):
        _read_inside(connection, statement, params)
        return
    text = statement if isinstance(statement, str) else narrowed(connection, statement, params)
    with connection._current_session().holding():
        as_user(partial(connection._duck.execute, text, params))
    if isinstance(statement, PassThrough) and statement.kind == "select":
        connection._again = statement, params


def stream(connection: Connection, statement: PassThrough, params: Any, batch_size: int) -> Any:
    """A query again, as a lazy reader: that of a result which `execute` has begun would first copy all rows."""
    from sqlfront.read.lookups import narrowed

    with connection._database.engine.lock:
        connection._duck.abort()
        connection._start_reading()
        text = narrowed(connection, statement, params)
        with connection._current_session().holding():
            return as_user(partial(connection._duck.sql, text, params=params)).to_arrow_reader(batch_size)


def _read_inside(connection: Connection, statement: PassThrough, params: Any) -> None:
    """A read in a transaction: its own changes are applied for the time of the read, and taken back."""
    from sqlfront.read.lookups import narrowed

    with connection._reading_own():
        text = narrowed(connection, statement, params)
        with lossless(connection._duck):
            table = as_user(partial(connection._duck.sql, text, params=params)).to_arrow_table()
    set_result(connection, table)


def set_result(connection: Connection, table: Any) -> None:
    """Make an Arrow table the connection's result."""
    connection._served = HeldResult(connection._duck, table)

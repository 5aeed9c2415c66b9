"""One statement at a time: ours to their handlers, DuckDB's to DuckDB, with what views need around it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.database.durable import compact_logs
from sqlfront.database.elsewhere import bodies_found
from sqlfront.database.frames import as_user, relations_read
from sqlfront.database.names import require_current, view_named
from sqlfront.database.reads_ours import reads_own_changes
from sqlfront.database.reserved import listing, looks_into_catalog, refuse_reserved, without_reserved
from sqlfront.database.sessions import NOTHING, Reads
from sqlfront.database.transactions import catch_up, check_all
from sqlfront.database.user_settings import forget_settings, lossless
from sqlfront.define.moving import check_moving, refuse_copy
from sqlfront.sql import statements as own
from sqlfront.sql.recognise import may_write
from sqlfront.sql.statements import PassThrough, Statement
from sqlfront.storage.errors import NotSupportedError, ProgrammingError
from sqlfront.storage.native.starting import starting
from sqlfront.transaction_statements import begin, end, writes

if TYPE_CHECKING:
    from sqlfront.database.running.streams import Stream
    from sqlfront.database.sessions import Session

# What surely leaves captured tables as they are. Others may write: EXECUTE, EXPLAIN ANALYZE, CALL.
_QUIET = {"begin", "select", "copy_to", "create_table_as", "show_tables", "describe", "prepare", "attach", "use", "set"}
# What writes nothing, or says itself whether it tells its changes.
_MAY_TELL = {"select", "show_tables", "describe", "insert", "update", "delete", "merge"}
_WRITES = {"insert", "update", "delete", "merge", "truncate", "copy_from"}


def run(session: Session, statement: Statement, params: Any, *, many: bool = False) -> None:
    """Run one statement; its result, if any, is left on the connection."""
    if isinstance(statement, PassThrough):
        if session.database.capture.untold and _may_make_trigger(statement):
            catch_up(session.database)  # Writes that told their changes came before the trigger.
        try:
            with nullcontext() if session.database.keeps_nothing else relations_read(session.duck, statement.text):
                _pass_through(session, statement, params, many)
        finally:
            if statement.kind in _RENAMES:  # Afterwards: it may have looked names up itself before it changed them.
                session.database.forget_names()  # Of all sessions: a setting may be one for all.
                session.database.capture.note_ddl()
                if statement.kind != "ddl" or statement.object not in _NAME_NO_QUERY - {"schema"}:  # It may be a path.
                    forget_settings()
            if _may_define(statement):
                session.database.definitions += 1
                if session.transaction is not None:
                    session.transaction.defines = True
        return
    if many:
        raise ProgrammingError("executemany takes INSERT, UPDATE, DELETE or MERGE")
    _run_own(session, statement)


def _run_own(session: Session, statement: Statement) -> None:
    session.tell(False)
    if session.transaction is not None:
        session.transaction.note("own")
    check_all(session.database)
    _load_definitions()
    defines = not isinstance(statement, (*READS, own.RefreshChangeTables, own.SetOwn))
    if defines:
        _refuse_definition(session)
    asks_itself = isinstance(statement, own.CreateMaterializedView)  # Together with its other questions.
    if (defines and not asks_itself) or isinstance(statement, own.CheckMaterializedView):
        require_current(session.database, session.duck)
    with session.database.progress.watch(statement.text):
        _OWN.get(type(statement), _show)(session, statement)


@functools.cache
def _load_definitions() -> None:
    """Import what defines and maintains views."""
    with starting():
        import sqlfront.define.ddl  # noqa: F401


def _refuse_definition(session: Session) -> None:
    """Raise where views and change tables cannot be defined, dropped or changed."""
    if session.transaction is not None:
        raise NotSupportedError(
            "definitions of views and change tables cannot change inside a transaction",
            why="building a view is not part of a transaction",
            hint="COMMIT first",
        )
    if session.database.read_only:
        raise ProgrammingError(
            "definitions of views and change tables cannot change here",
            why=f"{session.database.path} is open read-only",
            hint="connect without access_mode = 'READ_ONLY'",
        )


def _create_view(session: Session, statement: own.CreateMaterializedView) -> None:
    from sqlfront.define.ddl import create_view

    create_view(session.database, session.duck, statement)


def _drop_view(session: Session, statement: own.DropMaterializedView) -> None:
    from sqlfront.define.ddl import drop_view

    drop_view(session.database, session.duck, statement.name, if_exists=statement.if_exists, cascade=statement.cascade)


def _refresh_view(session: Session, statement: own.RefreshMaterializedView) -> None:
    from sqlfront.define.ddl import refresh_view

    refresh_view(session.database, session.duck, statement.name)


def _alter_view(session: Session, statement: own.AlterMaterializedView) -> None:
    from sqlfront.define.ddl import alter_view

    alter_view(session.database, session.duck, statement.name, statement.options)


def _rename_view(session: Session, statement: own.RenameMaterializedView) -> None:
    from sqlfront.define.renaming import rename_view

    rename_view(session.database, session.duck, statement)


def _create_index(session: Session, statement: own.CreateViewIndex) -> None:
    from sqlfront.define.view_index import create_index

    create_index(session.database, session.duck, statement)


def _drop_index(session: Session, statement: own.DropViewIndex) -> None:
    from sqlfront.define.view_index import drop_index

    drop_index(session.database, session.duck, statement)


def _create_change_table(session: Session, statement: own.CreateChangeTable) -> None:
    from sqlfront.define.change_table_ddl import create_change_table

    create_change_table(session.database, session.duck, statement)


def _drop_change_table(session: Session, statement: own.DropChangeTable) -> None:
    from sqlfront.define.change_table_ddl import drop_change_table

    drop_change_table(
        session.database, session.duck, statement.name, if_exists=statement.if_exists, cascade=statement.cascade
    )


def _pull(session: Session, statement: own.RefreshChangeTables) -> None:
    from sqlfront.feeds.table_sources import pull

    pull(session, [name.parts for name in statement.names])


def _subscribe(session: Session, statement: own.Subscribe) -> None:
    from sqlfront.define.options import check_options
    from sqlfront.feeds.feed import subscribe
    from sqlfront.feeds.feed_cursor import FeedCursor

    database = session.database
    with database.lock:
        session.start_reading()
        entry = database.view(session.duck, statement.name.parts)
        options = check_options("subscription", statement.options)
        subscription = subscribe(database, entry, **options, lossless=True)
        session.served = FeedCursor(database, entry.definition, subscription)


def _set(session: Session, statement: own.SetOwn) -> None:
    name = statement.name.lower()
    if name != "sqlfront_threads" or not isinstance(statement.value, int) or statement.value < 1:
        raise ProgrammingError(
            f"SET {statement.name} = {statement.value} is not possible",
            why="the one setting of ours that SET changes is sqlfront_threads, a whole number from 1 on",
            hint="SET sqlfront_threads = 2",
        )
    session.database.set_threads(statement.value)


def _show(session: Session, statement: Statement) -> None:
    from sqlfront.explain import show

    entry = None
    if isinstance(statement, (own.CheckMaterializedView, own.ShowErrors)):  # They read what the view's query does, too.
        entry = view_named(session, statement.name.parts)
    with session.reading_own(NOTHING if entry is None else session.reads_of(f"{statement.text} {entry.select}")):
        session.database.engine.pulled.catch_up_all()
        if entry is not None and session.has_moved_on(entry):  # What DuckDB would answer is not the view.
            session.database.make_readable(entry, session.current_reading())
        table = show.show(session, statement)
    session.set_result(table)


# Statements of ours that only look.
READS = (
    own.ShowChangeTables,
    own.ShowMaterializedViews,
    own.ShowState,
    own.ShowEpochs,
    own.ShowErrors,
    own.ExplainMaterializedView,
    own.ExplainMaterialized,
    own.ExplainCreation,
    own.ExplainAlgebra,
    own.CheckMaterializedView,
    own.Subscribe,
)
_OWN: dict[type[Statement], Callable[[Session, Any], object]] = {
    own.CreateMaterializedView: _create_view,
    own.DropMaterializedView: _drop_view,
    own.RefreshMaterializedView: _refresh_view,
    own.AlterMaterializedView: _alter_view,
    own.RenameMaterializedView: _rename_view,
    own.CreateViewIndex: _create_index,
    own.DropViewIndex: _drop_index,
    own.CreateChangeTable: _create_change_table,
    own.DropChangeTable: _drop_change_table,
    own.RefreshChangeTables: _pull,
    own.Subscribe: _subscribe,
    own.SetOwn: _set,
}
"""What carries out each of our statements; SHOW, EXPLAIN and CHECK are shown."""

# These can change what a name means.
_RENAMES = {"use", "set", "attach", "ddl", "create_table_as", "execute", "other"}
# These can bring macros.
_MACROS = {"attach", "other"}
# What DDL makes that stands for no query.
_NAME_NO_QUERY = {"table", "index", "schema", "sequence", "type", "trigger"}


def _pass_through(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    if session.transaction is not None:
        session.transaction.note(statement.kind)
    refuse_reserved(statement)
    follow_up = check_moving(session, statement)
    if statement.kind not in _MAY_TELL:
        session.tell(False)
    if statement.kind in _MACROS or _is_macro(statement):
        session.database.macros = None
    table = _ALONE if session.database.keeps_nothing else _PASSED
    table.get(statement.kind, _run_plain)(session, statement, params, many)
    if follow_up is not None:
        follow_up()
    if session.transaction is not None and (statement.kind not in _QUIET or may_write(statement.text)):
        session.transaction.touch()


def _may_define(statement: PassThrough) -> bool:
    """Whether a statement can make a plain view or a macro."""
    return statement.kind in _MACROS or (statement.kind == "ddl" and statement.object not in _NAME_NO_QUERY)


def _may_make_trigger(statement: PassThrough) -> bool:
    return statement.kind in ("execute", "other") or statement.object == "trigger"


def _is_macro(statement: PassThrough) -> bool:
    return statement.kind == "ddl" and statement.object in ("macro", "function")


def _write(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    from sqlfront.write import dml

    check_all(session.database)
    key = dml.written_key(session, statement)
    if key is None:
        session.tell(False)
        _run_plain(session, statement, params, many)
    else:
        with session.database.turns.writing(), session.database.progress.watch(statement.text):
            dml.write(session, statement, key, params, many)


def _define(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    """DDL: of an index on a view, of a table that views read, or of what concerns no view."""
    from sqlfront.define import table_ddl, view_index

    check_all(session.database)
    about_view = view_index.own_statement(session.database, session.duck, statement)
    if _is_macro(statement):
        read(session, statement, params)
    elif statement.kind == "ddl" and about_view:
        _run_own(session, about_view)
    elif table_ddl.needs_us(session, statement):
        table_ddl.alter(session, statement, partial(_run_plain, session, statement, params, many))
    else:
        _run_plain(session, statement, params, many)


def _checkpoint(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    if session.transaction is None:
        compact_logs(session.database, now=True)
        if session.database.epoch_limit is not None:
            from sqlfront.snapshots.saving import save_snapshot

            save_snapshot(session.database)
    read(session, statement, params)


def _show_tables(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    read(session, without_reserved(statement), None)


def _run_indirect(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    """PREPARE and EXPLAIN of another statement."""
    from sqlfront.write import dml

    if not many and statement.inner in _WRITES:
        dml.check_indirect(session, statement)
    _run_plain(session, statement, params, many)


def _execute(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    """EXECUTE, which may write."""
    with bodies_found(session):
        _run_plain(session, statement, params, many)


def _attach(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    _run_plain(session, statement, params, many)
    refuse_copy(session)


def _run_plain(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    if not many:
        read(session, statement, params)
        return
    session.tell(False)
    reads = _reads(session, statement)
    with session.database.lock:
        session.start_reading(reads)
        # As one statement does: its scans wait for nobody.
        with session.reading_own(reads) if session.is_rewound() else session.held_reading():
            as_user(partial(session.duck.executemany, statement.text, params))
    session.has_result = True


def _end(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    """COMMIT or ROLLBACK; without a transaction, DuckDB says what is wrong."""
    if session.transaction is None:
        _run_plain(session, statement, params, many)
    else:
        end(session, statement)


_PASSED: dict[str, Callable[[Session, PassThrough, Any, bool], None]] = {
    "begin": begin,
    "commit": _end,
    "rollback": _end,
    "ddl": _define,
    "create_table_as": _define,
    "checkpoint": _checkpoint,
    "show_tables": _show_tables,
    "prepare": _run_indirect,
    "explain": _run_indirect,
    "execute": _execute,
    "attach": _attach,
    **dict.fromkeys(_WRITES, _write),
}
"""What carries out each kind of statement of DuckDB's; all other kinds are run as they are."""

_ALONE = {kind: _PASSED[kind] for kind in ("begin", "commit", "rollback", "show_tables", "attach")}
"""The same where nothing is kept: no handler that looks for views is loaded."""


def read(session: Session, statement: PassThrough | str, params: Any) -> None:
    """Run a statement that DuckDB executes, perhaps reading views: all its scans see one epoch."""
    database = session.database
    if database.views or database.change_tables:
        with database.lock:  # Nobody commits between the beginning of the session and its first scans.
            _read_views(session, statement, params)
    else:
        session.reading = None
        text = statement if isinstance(statement, str) else statement.text
        if _is_writing_query(statement):
            _run_whole(session, text, params)
        else:
            as_user(partial(session.duck.execute, text, params))
    session.has_result = True


def _read_views(session: Session, statement: PassThrough | str, params: Any) -> None:
    reads = _reads(session, statement)
    session.start_reading(reads, alone=isinstance(statement, str) or not writes(session, statement))
    if isinstance(statement, PassThrough) and looks_into_catalog(session, statement):
        session.hide_scans()
        statement = listing(statement)
    if session.is_rewound() or reads_own_changes(session, statement) or _is_writing_query(statement):
        with session.reading_own(reads):  # The transaction's own changes are in the views for the time of the read.
            _run_whole(session, _narrowed(session, statement, params), params)
        return
    text = _narrowed(session, statement, params)
    with session.current_reading().holding():
        as_user(partial(session.duck.execute, text, params))
    session.read_on()
    if isinstance(statement, PassThrough) and statement.kind == "select":
        session.again = statement, params


def stream(session: Session, statement: PassThrough | str, params: Any, batch_size: int) -> Stream:
    """A query again, as a lazy reader: that of a result which `execute` has begun would first copy all rows."""
    text = statement if isinstance(statement, str) else statement.text
    with relations_read(session.duck, text), session.database.lock:
        session.end_result()
        session.start_reading(_reads(session, statement))
        if session.is_rewound():
            _read_views(session, statement, params)
            assert session.served is not None
            return session.stream(session.served.to_arrow_table().to_reader(batch_size))
        text = _narrowed(session, statement, params)
        with session.current_reading().holding():
            reader = as_user(partial(session.duck.sql, text, params=params)).to_arrow_reader(batch_size)
        session.read_on()
        session.has_result = True
        return session.stream(reader)


def _narrowed(session: Session, statement: PassThrough | str, params: Any) -> str:
    from sqlfront.read.lookups import narrowed

    return statement if isinstance(statement, str) else narrowed(session, statement, params)


def _reads(session: Session, statement: PassThrough | str) -> Reads:
    """The views that a statement may read."""
    if isinstance(statement, str):
        return session.reads_of(statement)
    return session.reads_of(None if statement.kind in ("execute", "other") else statement.text)


def _is_writing_query(statement: PassThrough | str) -> bool:
    return isinstance(statement, PassThrough) and statement.kind == "select" and may_write(statement.text)


def _run_whole(session: Session, text: str, params: Any) -> None:
    """Run a query to its end: of one that is not fetched, DuckDB would cancel the rest, with what it writes."""
    session.tell(False)
    with lossless(session.duck):
        table = as_user(partial(session.duck.sql, text, params=params)).to_arrow_table()
    session.set_result(table)

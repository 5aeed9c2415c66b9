"""INSERT, UPDATE, DELETE, MERGE, TRUNCATE and COPY FROM on tables that views read, and on change tables.

An ordinary table is written by DuckDB itself while triggers capture what changes. A change table has
no rows in DuckDB: the statement runs on a temporary table of the same columns, and what changed there
is what changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.database.elsewhere import bodies_found
from sqlfront.database.entries import ChangeTable, lost
from sqlfront.database.failures import expect_copy, translated
from sqlfront.database.frames import as_user, user_object
from sqlfront.database.names import Key, captured_table, meant, shown
from sqlfront.database.reads_ours import reads_ours
from sqlfront.database.transactions import Transaction
from sqlfront.database.user_settings import lossless
from sqlfront.sql.name_parts import GAP, NAME, OPAQUE
from sqlfront.sql.statements import Name, PassThrough
from sqlfront.storage.capture.trigger_sql import table_sql
from sqlfront.storage.codecs.arrow_batches import numbers_of
from sqlfront.storage.codecs.transport import exported
from sqlfront.storage.errors import IntegrityError, NotSupportedError, ProgrammingError, StaleRead
from sqlfront.storage.sql_text import exact, quote
from sqlfront.write.returned import (
    captured_relation,
    commit_captured,
    names_interval,
    told_relation,
    write_returned,
    write_told,
)
from sqlfront.write.two_statements import two_statements

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.sessions import Session

_STAGE, _BEFORE = "__sqlfront_stage", "__sqlfront_before"


def written_key(session: Session, statement: PassThrough) -> Key | None:
    """The captured table or change table that a write concerns, if any. ProgrammingError for what cannot be written,
    such as a view."""
    database = session.database
    for target in statement.targets:
        key = meant(session, target.parts)
        if key in database.views or key in database.unbuilt:
            raise ProgrammingError(
                f"{'.'.join(target.parts)} is a materialized view and cannot be written",
                hint="change the tables that it reads; it follows",
            )
        if key in database.change_tables and database.read_only:
            raise ProgrammingError(
                f"change table {'.'.join(target.parts)} cannot be written",
                why=f"{database.path} is open read-only",
                hint="connect without access_mode = 'READ_ONLY'",
            )
        if key is not None:
            rebinding = session.transaction.rebinding if session.transaction is not None else None
            return None if rebinding is not None and key in rebinding.tables else key
    return None


def check_indirect(session: Session, statement: PassThrough) -> None:
    """Refuse PREPARE and EXPLAIN of a write that DuckDB cannot plan by itself. Triggers capture the others' changes."""
    key = written_key(session, statement)
    if key is None:
        return
    target, verb = ".".join(statement.targets[0].parts), statement.kind.upper()
    hint = "execute the statement itself, with parameters: con.execute(sql, params), or executemany"
    if key in session.database.change_tables:
        why = "change tables are kept by the engine, which DuckDB's plans do not reach"
        raise NotSupportedError(f"{verb} of a write to change table {target} is not supported", why=why, hint=hint)
    if statement.upsert:
        why = "materialized views read the table, and DuckDB's triggers do not see the changes of an upsert"
        raise NotSupportedError(f"{verb} of an upsert into {target} is not supported", why=why, hint=hint)


def write(session: Session, statement: PassThrough, key: Key, params: Any, many: bool) -> None:
    """Run a write of the table `key` and, in autocommit, commit it as one epoch; its result is left on the
    connection."""

    database = session.database
    change_table = database.change_tables.get(key)
    session.reading = None
    if change_table is None and session.transaction is None and session.reads_nothing(statement.text):
        try:
            with bodies_found(session), session.passing_over(), translated(session.reading_error):
                _leave(session, _write_alone(session, statement, key, params, many))
            return
        except StaleRead:  # It reads one of ours by another name; nothing has been changed.
            session.reading = None
    reading = change_table is not None or reads_ours(session, statement)
    # What it reads of tables and of views is of one epoch: nobody commits from its BEGIN on.
    with database.lock if reading else nullcontext(), unit(session) as transaction:
        if change_table is not None:
            result = _write_change_table(session, transaction, change_table, statement, params, many)
        else:
            with session.reading_own(session.reads_of(statement.text)) if reading else nullcontext():
                result = _write_table(session, statement, key, params, many)
    _leave(session, result)


def _write_alone(session: Session, statement: PassThrough, key: Key, params: Any, many: bool) -> pa.Table | int:
    """Write a captured table in autocommit, reading nothing of ours: the statement tells its changes itself, or leaves
    them in the table's own delta table."""
    count = None if many else write_returned(session, statement, key, params)
    if count is None and not many and not params and (statement.kind == "merge" or statement.upsert):
        count = _write_twice(session, statement, key)
    if count is not None:
        return count
    with unit(session, key):
        return _write_table(session, statement, key, params, many)


def _write_twice(session: Session, statement: PassThrough, key: Key) -> int | None:
    """Run an upsert or a MERGE of one row as two statements; how many rows it changed. None, and nothing is changed, if
    it is not of that form, or one fails, or neither meets a row (a key with a collation)."""
    import duckdb

    relation = None if statement.returning else told_relation(session, key)
    table = captured_table(session.database, key)
    texts = None if relation is None else two_statements(session, statement.text, table)
    if relation is None or texts is None:
        return None
    try:
        return write_told(session, relation, texts) or None
    except duckdb.Error:
        return None


def _leave(session: Session, result: pa.Table | int) -> None:
    """Leave the result of a write: rows, or how many were changed."""
    if isinstance(result, int):
        session.set_count(result)
    else:
        session.set_result(result)


@contextmanager
def unit(session: Session, key: Key | None = None) -> Iterator[Transaction]:
    """The open transaction, or one for this statement alone that is committed at the end: a write of the captured table
    `key` and of nothing else of ours, if it is given."""

    def commit(transaction: Transaction) -> None:
        if key is None or not session.database.capture.alone:
            transaction.commit()
        else:
            commit_captured(session, transaction, key)

    with bodies_found(session), session.in_transaction(commit) as transaction:
        started = time.perf_counter()
        yield transaction
        transaction.writing += time.perf_counter() - started


def _write_table(session: Session, statement: PassThrough, key: Key, params: Any, many: bool) -> pa.Table | int:
    database, con = session.database, session.duck
    if statement.kind == "merge" or statement.upsert or names_interval(statement, captured_relation(session, key)):
        name = captured_table(database, key)
        with _user_objects(con, statement):
            return database.capture.run_upsert_or_merge(
                con, name, statement.text, params, in_transaction=True, many=many
            )
    return _run(con, statement, statement.text, params, many)


@contextmanager
def _user_objects(con: Any, statement: PassThrough) -> Iterator[None]:
    """Register the Python objects that a statement names, where it is not run from the user's frame."""
    names = {reference.parts[0] for reference in statement.references or () if len(reference.parts) == 1}
    known = con.execute(
        "SELECT lower(table_name) FROM duckdb_tables() UNION ALL SELECT lower(view_name) FROM duckdb_views()"
    ).fetchall()
    objects = {name: user_object(name) for name in names if (name.lower(),) not in known}
    objects = {name: value for name, value in objects.items() if hasattr(value, "__arrow_c_stream__")}
    for name, value in objects.items():
        con.register(name, value)
    try:
        yield
    finally:
        for name in objects:
            con.unregister(name)


def _run(con: Any, statement: PassThrough, text: str, params: Any, many: bool) -> Any:
    """Run a write, by this text, in DuckDB; its result as an Arrow table that keeps every type."""
    if not (many or statement.returning or statement.inner):  # Which puts out nothing but a count.
        [(count,)] = as_user(partial(con.execute, text, params)).fetchall()
        return int(count)
    with lossless(con):
        if not many:
            return as_user(partial(con.sql, text, params=params)).to_arrow_table()
        as_user(partial(con.executemany, text, params))
        expect_copy()
        return con.to_arrow_table()


def _write_change_table(
    session: Session,
    transaction: Transaction,
    table: ChangeTable,
    statement: PassThrough,
    params: Any,
    many: bool,
) -> Any:
    con = session.duck
    if statement.kind == "truncate" and table.lost is not None:
        transaction.truncated(table)
        return 0
    if table.lost is not None:
        raise lost(f"change table {table.name}", table)
    if statement.returning:
        raise NotSupportedError(f"RETURNING on change table {table.name} is not supported", hint="leave it out")
    conflicts = _handles_conflicts(statement)
    plain_insert = statement.kind in ("insert", "copy_from") and not conflicts
    if not plain_insert and not table.retain:
        raise ProgrammingError(
            f"{statement.kind.upper()}{' with a conflict clause' if conflicts else ''} on change table {table.name}",
            why="it was created WITH (retain = false): its rows are not kept, so only plain INSERT works",
            hint="give exact changes with con.apply and _weight, or create it WITH (retain = true)",
        )
    with session.reading_own(session.reads_of(statement.text)), _by_name(table):
        keys = table.keys if conflicts else ()
        con.execute(f"CREATE OR REPLACE TEMP TABLE {_STAGE} ({_declaration(table, keys)})")
        if not plain_insert:
            _copy_rows(con, table, table_sql(session.database.name, table.name))
            con.execute(f"CREATE OR REPLACE TEMP TABLE {_BEFORE} AS SELECT * FROM {_STAGE}")
        result = _run(con, statement, _on_stage(statement, table), params, many)
        rows, weights = _staged(con, table, plain_insert)
        con.execute(f"DROP TABLE temp.{_STAGE}; DROP TABLE IF EXISTS temp.{_BEFORE}")
    if rows.num_rows:
        transaction.add(table, rows, weights)
    return result


def _copy_rows(con: Any, table: ChangeTable, source: str) -> None:
    """The rows of a change table into the temporary one, which has its keys if the statement asks for them."""
    import duckdb

    try:
        con.execute(f"INSERT INTO {_STAGE} SELECT * FROM {source}")
    except duckdb.ConstraintException as error:
        raise IntegrityError(
            f"the rows of change table {shown(table.name)} violate a key, so conflicts with it cannot be handled",
            why=f"declared keys of change tables are not enforced: {error}",
            hint="delete the duplicates, or use MERGE",
        ) from error


def _handles_conflicts(statement: PassThrough) -> bool:
    """Whether an INSERT says what to do with a row whose key is there: ON CONFLICT, OR REPLACE, OR IGNORE."""
    if statement.upsert or statement.kind != "insert":
        return statement.upsert
    return any(found["clause"] for found in _CONFLICT.finditer(statement.text))


@contextmanager
def _by_name(table: ChangeTable) -> Iterator[None]:
    """DuckDB's errors about the temporary table name the change table instead."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        if _STAGE not in str(error):
            raise
        raise type(error)(
            str(error).replace(f"temp.{_STAGE}", shown(table.name)).replace(_STAGE, table.name.name)
        ) from None


def _on_stage(statement: PassThrough, table: ChangeTable) -> str:
    """The statement with the temporary table in place of the change table, which goes on being called by its name.

    The text is scanned and no tree is made of it: it may hold a million values.
    """
    [target], text = statement.targets, statement.text
    takes_alias = statement.kind in ("update", "delete", "merge", "insert")
    alias = f" AS {quote(target.parts[-1])}" if takes_alias and not _ALIAS.match(text, target.end) else ""
    rest = text[target.end :]
    if alias and len(target.parts) > 1:
        rest = _unqualified(rest, target)
    return f"{text[: target.start]}temp.{_STAGE}{alias}{rest}"


def _unqualified(text: str, target: Name) -> str:
    """schema.t.a as t.a in a text: an alias has no schema."""
    parts = [rf'(?:"{re.escape(quote(part)[1:-1])}"|\b{re.escape(part)}\b)' for part in target.parts]
    qualifier = r"\s*\.\s*".join([*parts[:-1], ""])
    pattern = re.compile(
        rf"""{qualifier}(?={parts[-1]})|(?P<other>{OPAQUE}|"(?:[^"]|"")*")""", re.IGNORECASE | re.DOTALL
    )
    return pattern.sub(lambda found: found["other"] or "", text)


_CONFLICT = re.compile(
    rf"""{OPAQUE}|"(?:[^"]|"")*"|\b(?P<clause>on{GAP}conflict|insert{GAP}or{GAP}ignore)\b""", re.IGNORECASE | re.DOTALL
)
_ALIAS = re.compile(
    rf"{GAP}(?!(?:set|where|using|returning|values|select|from|with|default|by|table)\b){NAME}",
    re.IGNORECASE | re.DOTALL,
)
"""A name that follows the table's, with or without AS."""


def _staged(con: Any, table: ChangeTable, plain_insert: bool) -> tuple[Any, np.ndarray]:
    """What the statement changed on the temporary table, as rows and weights."""
    with lossless(con):
        if plain_insert:
            rows = exported(con.sql(f"FROM temp.{_STAGE}")).to_arrow_table()
            return rows, np.ones(rows.num_rows, np.int64)
        told = [column for column in table.columns if "INTERVAL" in column.type]
        spelled = "".join(f", {exact(quote(one.name), one.type)} AS __spelled_{i}" for i, one in enumerate(told))
        names = ", ".join(quote(column.name) for column in table.columns)
        before, after = (f"(SELECT {names}{spelled} FROM temp.{name})" for name in (_BEFORE, _STAGE))
        changed = con.sql(
            f"SELECT {names}, -1 AS __weight FROM ({before} EXCEPT ALL {after}) UNION ALL "
            f"SELECT {names}, 1 FROM ({after} EXCEPT ALL {before})"
        )
        rows = exported(changed).to_arrow_table()
    weights = numbers_of(rows.column("__weight"))
    return rows.drop_columns(["__weight"]), weights


def _declaration(table: ChangeTable, keys: Sequence[tuple[str, ...]]) -> str:
    """The columns of a change table with their defaults; the keys only where a conflict clause asks for them."""
    parts = []
    for column in table.columns:
        default = table.defaults.get(column.name)
        text = f"{quote(column.name)} {column.type}" + (f" DEFAULT {default}" if default is not None else "")
        parts.append(text + (" NOT NULL" if column.not_null else ""))
    return ", ".join([*parts, *(f"UNIQUE ({', '.join(map(quote, key))})" for key in keys)])

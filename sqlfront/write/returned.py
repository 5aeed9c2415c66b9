"""Writes in autocommit, as one epoch each, that read nothing of ours.

INSERT and DELETE tell their changes by RETURNING, and so does an UPDATE, after a query for the rows as they were: our
triggers pass over what such a session writes. All other writes leave their changes in the delta table of the table that
they write. What another writer has committed is not looked for: it is taken in before the next read, or if the epoch
does not fit without it.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sqlfront.database.durable import log_epoch
from sqlfront.database.failures import expect_copy
from sqlfront.database.frames import as_user
from sqlfront.database.names import Key, captured_table
from sqlfront.database.transactions import Transaction, apply_first, catch_up, rollback
from sqlfront.database.user_settings import lossless
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.sql.statements import PassThrough
from sqlfront.storage.codecs.transport import column_sql
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.sessions import Session
    from sqlfront.database.transactions import Rows
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.storage.capture.capture import QualifiedName

SIGNS = {"insert": 1, "delete": -1}
_BEFORE, _CHANGED, _GIVEN = "__sqlfront_before", "__sqlfront_changed", "__sqlfront_given"
FEW = 8
"""So many rows are applied as Python values, without Arrow."""
_PLAIN = re.compile(r"U?(TINY|SMALL|BIG)INT|U?INTEGER|BOOLEAN|VARCHAR|FLOAT|DOUBLE|DATE|TIMESTAMP|DECIMAL\(\d+,\d+\)")
"""Types that Arrow restores without DuckDB's setting for it, which costs two statements, and Python nearly."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table's relation: how many, as a list in SQL, as they leave DuckDB; whether all are of plain
    types; and the places of dates."""

    count: int
    names: str
    plain: bool
    dates: tuple[int, ...]

    def keeps(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Whether Python's values are DuckDB's: an infinite or a far date has none of its own."""
        return all(_is_near(row[place]) for place in self.dates for row in rows)


class _EndIsNotLastError(Exception):
    """The row that stands for the end of a query has come before others."""


@dataclass(frozen=True)
class Telling:
    """A statement that tells by RETURNING which rows come (`sign` 1) or go (-1).

    For the rows that an UPDATE takes away, `before` is the end of a query, from FROM on; its own WHERE begins at
    `where`. A `sure` UPDATE cannot fail: it is run only where there are some. `many` rows are expected: they are
    fetched as Arrow data.
    """

    text: str
    sign: int
    params: Any = None
    before: str = ""
    before_params: Any = None
    where: int = 0
    sure: bool = False
    many: bool = False

    def run(self, con: Any, relation: Relation, columns: Columns) -> tuple[int, Rows, list[int]] | None:
        """The number of rows that it counts, and the rows that change with their weights; None if they are not known
        exactly."""
        old: Rows = []
        if self.before:
            con.execute(f"SELECT {columns.names} {self.before}", self.before_params)
            found = self._fetched(con, relation, columns)
            if found is None or (self.sure and not len(found)):
                return None if found is None else (0, [], [])
            old = found
        as_user(partial(con.execute, f"{self.text}\nRETURNING {columns.names}", self.params))
        rows = self._fetched(con, relation, columns)
        if rows is None or (self.before and len(rows) != len(old)):
            return None
        weights = [-1] * len(old) + [self.sign] * len(rows)
        return len(rows), _joined(relation, old, rows) if len(old) else rows, weights

    def in_one(self, columns: Columns) -> tuple[str, Any]:
        """The statement and its parameters as a query for the changed rows, each behind its weight, and a row of weight
        0 that ends them.

        DuckDB runs the parts of a query together. An UPDATE finds its rows in the rows as they were, so DuckDB has read
        all of these before it changes one.
        """
        names, text, params = columns.names, self.text, self.params
        known = old = ""
        if self.before:
            known = f"{_BEFORE} AS MATERIALIZED (SELECT rowid AS __sqlfront_row, {names} {self.before}), "
            old = f"SELECT {-self.sign}, {names} FROM {_BEFORE} UNION ALL "
            text = f"{text[: self.where]} WHERE rowid IN (SELECT __sqlfront_row FROM {_BEFORE})"
            if self.before_params:
                params = [*self.before_params, *params[: -len(self.before_params)]]
        new = f"SELECT {self.sign}, {names} FROM {_CHANGED} UNION ALL SELECT 0{', NULL' * columns.count}"
        return f"WITH {known}{_CHANGED} AS ({text}\nRETURNING {names}) {old}{new}", params

    def _fetched(self, con: Any, relation: Relation, columns: Columns) -> Rows | None:
        """The rows of the connection's result, a few as Python values; None if Python has not all of these."""
        first = con.fetchmany(FEW + 1) if columns.plain and not self.many else []
        if not columns.keeps(first):
            return None
        return first if columns.plain and not self.many and len(first) <= FEW else _rest(con, relation, first)


def write_returned(session: Session, statement: PassThrough, key: Key, params: Any) -> int | None:
    """Run an INSERT or a DELETE of the captured table `key` as one epoch; how many rows it changed. None, with nothing
    changed, if the triggers have to capture it."""
    if statement.kind not in SIGNS or statement.inner or statement.upsert or statement.returning:
        return None
    relation = told_relation(session, key)
    telling = Telling(statement.text, SIGNS[statement.kind], params)
    return None if relation is None else write_told(session, relation, [telling])


def write_told(session: Session, relation: Relation, statements: Sequence[Telling]) -> int | None:
    """Run the first of the statements that changes rows of the relation's table, as one epoch; how many rows it
    changed. None, with nothing changed, if the triggers have to capture it."""
    found = run_told(session, relation, statements)
    return None if found is None else found[0]


def run_told(session: Session, relation: Relation, statements: Sequence[Telling]) -> tuple[int, Transaction] | None:
    """`write_told`, with the transaction, which has ended and has the epoch."""
    import duckdb

    con = session.duck
    session.tell(True)
    started = time.perf_counter()
    columns, told = _columns(relation), None
    try:
        transaction = session.begin_ending()
        transaction.touch()
        with nullcontext() if columns.plain else lossless(con):
            for statement in statements:
                told = statement.run(con, relation, columns)
                if told is None or told[0]:
                    break
    except (duckdb.BinderException, duckdb.ParserException):  # A clause that RETURNING does not go with, or no column.
        told = None
    except BaseException:
        session.transaction = None
        rollback(con)
        raise
    session.transaction = None
    if told is None:
        rollback(con)
        session.is_ending = False
        return None
    transaction.writing = time.perf_counter() - started
    count, rows, weights = told
    transaction.commit_told(relation.name, rows, weights, returned=True)
    session.is_ending = False
    return count, transaction


def write_few(session: Session, relation: Relation, telling: Telling) -> int | None:
    """Run a write as one epoch, without BEGIN and COMMIT; how many rows it changed. None, with nothing changed, if
    there are more than a few, if it fails, or if DuckDB does not keep the order of the query, as
    preserve_insertion_order lets it: it is run again then.

    DuckDB commits a query that writes in a CTE when it is asked for a row behind its last one. Until then `abort` takes
    everything back. The last row stands for the end, so the views have all others before DuckDB commits.
    """
    import duckdb

    con, columns = session.duck, _columns(relation)
    if not columns.plain:
        return None
    session.tell(True)
    started, rows, weights = time.perf_counter(), list[tuple[Any, ...]](), list[int]()
    try:
        as_user(partial(con.execute, *telling.in_one(columns)))
        most = 2 * FEW if telling.before else FEW
        while len(rows) <= most and (row := con.fetchone())[0]:
            rows.append(row[1:])
            weights.append(row[0])
        count = weights.count(telling.sign)
        unequal = telling.before and 2 * count != len(rows)  # A column called rowid may find more rows, or none.
        if len(rows) > most or not columns.keeps(rows) or unequal:
            con.abort()
            return None
        writing = time.perf_counter() - started
        with _known(session, relation, rows, weights, writing):
            if con.fetchone() is not None:
                raise _EndIsNotLastError
    except (duckdb.Error, _EndIsNotLastError):
        con.abort()
        return None
    except BaseException:
        con.abort()
        raise
    return count


def told_relation(session: Session, key: Key) -> Relation | None:
    """The relation of a captured table whose writes may tell their changes themselves: no trigger changes more."""
    return captured_relation(session, key) if tells_alone(session) else None


def tells_alone(session: Session) -> bool:
    """Whether writes may tell their changes themselves."""
    database = session.database
    if not database.capture.looked and session.transaction is None:
        catch_up(database)  # It looks for triggers with one query; the triggers' way would take a dozen.
    return database.capture.alone


def captured_relation(session: Session, key: Key) -> Relation | None:
    """The relation of a captured table, if a view reads it."""
    return relation_of(session, captured_table(session.database, key))


def relation_of(session: Session, table: QualifiedName) -> Relation | None:
    """The relation of an ordinary table, if a view reads it."""
    return session.database.engine.relations.get(session.database.relation_key(table))


def names_interval(statement: PassThrough, relation: Relation | None) -> bool:
    """Whether a statement may be an UPDATE of an INTERVAL in a table that views read. DuckDB's UPDATE may leave 30 days
    where 1 month is set, and RETURNING and its triggers tell 1 month."""
    if statement.kind != "update" or relation is None:
        return False
    text = statement.text.casefold()
    return any(column.type == "INTERVAL" and quote(column.name)[1:-1].casefold() in text for column in relation.columns)


def insert_known(session: Session, relation: Relation, text: str, params: Any, rows: Rows) -> int:
    """Run an INSERT of a few rows whose values in the relation are known, as one epoch; how many there are.

    The views have the rows before DuckDB commits its own transaction, and give them back if it fails.
    """
    session.tell(True)
    session.reading = None
    with _known(session, relation, rows, [1] * len(rows)):
        as_user(partial(session.duck.execute, text, params)).fetchall()
    return len(rows)


def insert_batch(session: Session, relation: Relation, into: str, rows: Rows) -> int | None:
    """Run an INSERT of rows whose values in the relation are all that it gives, as one epoch or in the open
    transaction; how many there are. None, with nothing done, if Arrow does not hold them as DuckDB does."""
    import duckdb

    if not _columns(relation).keeps(rows) or not _columns(relation).plain:
        return None
    con, text = session.duck, f"{into} FROM {_GIVEN}"
    session.tell(session.transaction is None)
    session.reading = None
    con.register(_GIVEN, relation.as_batch(rows))
    try:
        if session.transaction is not None:
            session.transaction.touch()
            con.execute(text).fetchall()
            return len(rows)
        with _known(session, relation, rows, [1] * len(rows)):
            con.execute(text).fetchall()
    finally:
        with suppress(duckdb.TransactionException):  # Of an aborted transaction, which takes the name along.
            con.unregister(_GIVEN)
    return len(rows)


@contextmanager
def _known(
    session: Session, relation: Relation, rows: Rows, weights: list[int], writing: float = 0.0
) -> Iterator[None]:
    """Commit these changes in DuckDB by the block, and in the views, which have them before: both or neither."""
    database = session.database
    with database.lock, Uninterrupted() as signals, ExitStack() as undo:
        started, applied = time.perf_counter(), None
        if rows:
            applied = apply_first(database, relation.name, rows, weights)
            undo.callback(database.engine.undo, applied)
            log_epoch(database, undo, {relation.name: (rows, weights)})
        signals.check()
        committing = time.perf_counter()
        yield
        undo.pop_all()
        if applied is not None:
            applied.work.took("writing in DuckDB", writing + time.perf_counter() - committing)
            database.capture.note_returned()
            database.engine.commit(applied, started - writing)
            database.note_epoch()


def commit_captured(session: Session, transaction: Transaction, key: Key) -> None:
    """Commit, as one epoch, a transaction that has written the captured table `key` and nothing else of ours."""
    database, con = session.database, session.duck
    relation = captured_relation(session, key)
    if relation is None:
        transaction.commit()
        return
    columns = _columns(relation)
    try:
        with nullcontext() if columns.plain else lossless(con):
            types = {column.name: column.type for column in relation.columns}
            database.capture.take_own(con, captured_table(database, key), types)
            rows = con.fetchmany(FEW + 1) if columns.plain and not columns.dates else []
            taken = rows if 0 < len(rows) <= FEW else _rest(con, relation, rows, weighted=True)
    except BaseException:
        rollback(con)
        raise
    if isinstance(taken, list):
        changed, weights = [row[:-1] for row in taken], [row[-1] for row in taken]
    else:
        changed, weights = taken.drop_columns(["_weight"]), taken.column("_weight").to_numpy()
    transaction.commit_told(relation.name, changed, weights, returned=False)


def _joined(relation: Relation, first: Rows, then: Rows) -> Rows:
    """Rows and more rows, as Python values if both are."""
    import pyarrow as pa

    if isinstance(first, list) and isinstance(then, list):
        return first + then
    tables = [rows for rows in (first, then) if isinstance(rows, pa.Table)]
    made = [
        rows if isinstance(rows, pa.Table) else pa.Table.from_batches([relation.as_batch(rows)]).cast(tables[0].schema)
        for rows in (first, then)
    ]
    return pa.concat_tables(made)


def _rest(con: Any, relation: Relation, first: Rows, *, weighted: bool = False) -> pa.Table:
    """All rows of the connection's result: the `first`, fetched already, and the rest."""
    import pyarrow as pa

    expect_copy()
    rest = con.to_arrow_table()
    if not first:
        return rest
    batch = relation.as_batch(first)
    if weighted:
        batch = batch.append_column("_weight", pa.array([row[-1] for row in first], pa.int64()))
    return pa.concat_tables([pa.Table.from_batches([batch]).cast(rest.schema), rest])


def _is_near(value: Any) -> bool:
    return value is None or (isinstance(value, datetime.date) and 1 < value.year < 9999)


_listed: WeakKeyDictionary[Relation, Columns] = WeakKeyDictionary()


def _columns(relation: Relation) -> Columns:
    """A relation's columns; asked for once."""
    found = _listed.get(relation)
    if found is None:
        names = ", ".join(column_sql(column.name, column.type) for column in relation.columns)
        dates = tuple(place for place, column in enumerate(relation.columns) if column.type in ("DATE", "TIMESTAMP"))
        plain = all(_PLAIN.fullmatch(column.type) for column in relation.columns)
        found = _listed[relation] = Columns(len(relation.columns), names, plain, dates)
    return found

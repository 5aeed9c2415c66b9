"""Snapshots: what the tasks of Spark's executions read, all of one execution from one epoch.

The first task that asks pins everything that its execution's plan reads, in one transaction under the engine's lock.
The tasks get slices of the pinned tables, so all executors, and tasks that run again, see one epoch whatever is
committed meanwhile. A read that the plan did not show is served only if nothing has been committed since; otherwise it
fails. Snapshots are dropped, oldest first, when those held together exceed `HELD_BYTES`.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sqlfront.database.names import locate, name_parts
from sqlfront.database.user_settings import lossless
from sqlfront.spark.clauses import clauses
from sqlfront.spark.plans import Request
from sqlfront.sql.search_path import look_up
from sqlfront.storage.capture.trigger_sql import table_sql
from sqlfront.storage.errors import Error, OperationalError, ProgrammingError, StaleRead
from sqlfront.storage.outside.spark_types import spark_columns
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.connection import Connection

HELD_BYTES = 1 << 30
MOST_REMEMBERED = 1 << 12
_READ = ("view", "columns", "where", "order_by", "limit")
_TRIES = 8


@dataclass
class Snapshot:
    """What an execution reads, by read; None when it has been dropped, which is remembered."""

    epoch: int
    tables: dict[str, pa.Table] | None

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in (self.tables or {}).values())


class Snapshots:
    """The snapshots of one database's views. `planned` gives the reads in the plan of an execution."""

    def __init__(self, connection: Connection, planned: Callable[[Request], Iterable[Request]]) -> None:
        self._connection, self._planned = connection, planned
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, str], Snapshot] = OrderedDict()

    def read(self, request: Request) -> pa.Table:
        """The rows that a task's read is of, from the snapshot of its execution: (`session`, `execution`)."""
        execution, key = (request["session"], request["execution"]), _key(request)
        with self._lock:
            snapshot = self._held.get(execution)
            if snapshot is None:
                snapshot = self._held[execution] = self._pin([request, *self._planned(request)])
                self._drop_oldest()
            if snapshot.tables is None:
                raise OperationalError(
                    f"the snapshot of {request['view']} that this execution reads is not held any more",
                    why=f"snapshots of more than {HELD_BYTES >> 20} MB were read since it began",
                    hint="run it again",
                )
            if key not in snapshot.tables:
                snapshot.tables[key] = self._late(snapshot, request)
                self._drop_oldest()
            return snapshot.tables[key]

    def held(self) -> list[pa.Table]:
        """The tables of all snapshots, oldest first."""
        return [table for snapshot in self._held.values() for table in (snapshot.tables or {}).values()]

    def _pin(self, reads: Sequence[Request]) -> Snapshot:
        """A snapshot of the first read, and of the others if they can be read: else their own tasks get the error."""
        wanted, tries = {_key(read): read for read in reversed(reads)}, 0
        while True:
            try:
                return self._together(wanted)
            except _Unreadable as failed:
                tries += isinstance(failed.error, StaleRead)
                if failed.key == _key(reads[0]) or tries == _TRIES:
                    raise failed.error from None
                if not isinstance(failed.error, StaleRead):
                    del wanted[failed.key]

    def _together(self, wanted: Mapping[str, Request]) -> Snapshot:
        """All these reads in one transaction, under the lock: no commit, here or past the engine, lies between two."""
        tables, engine = {}, self._connection.session.database.engine
        with engine.lock, self._connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for key, read in wanted.items():
                try:
                    tables[key] = _read(cursor, read)
                except Error as error:
                    raise _Unreadable(key, error) from error
            return Snapshot(engine.epoch, tables)

    def _late(self, snapshot: Snapshot, request: Request) -> pa.Table:
        """A read that the plan did not show, if it is of the snapshot's epoch still."""
        later = self._pin([request])
        if later.epoch != snapshot.epoch:
            raise OperationalError(
                f"{request['view']} cannot be read at the epoch that this execution reads",
                why=f"it began at epoch {snapshot.epoch}, epoch {later.epoch} has been committed since, and no plan "
                f"shows that it reads {request['view']}, as of jobs over RDDs",
                hint="read with DataFrames or SQL instead of df.rdd, or run it again",
            )
        return (later.tables or {})[_key(request)]

    def _drop_oldest(self) -> None:
        """Hold no more than `HELD_BYTES`, but always the latest. What was dropped is remembered: to read it again in
        the same execution would mix epochs."""
        held = [snapshot for snapshot in self._held.values() if snapshot.tables is not None]
        total = sum(snapshot.nbytes for snapshot in held)
        for snapshot in held[:-1]:
            if total <= HELD_BYTES:
                break
            total -= snapshot.nbytes
            snapshot.tables = None
        while len(self._held) > MOST_REMEMBERED:
            self._held.popitem(last=False)


class _Unreadable(Exception):
    """One of several reads has failed, with an error of ours."""

    def __init__(self, key: str, error: Error) -> None:
        super().__init__(str(error))
        self.key, self.error = key, error


def readable(cursor: Connection, parts: Sequence[str]) -> tuple[str, Sequence[tuple[str, str]]]:
    """A view as SQL calls it, and its columns: a materialized one, or an ordinary one, as shards are read by."""
    database, con = cursor.session.database, cursor.session.duck
    found = look_up(con, parts, temporary=False).first()
    if found is not None and found.is_view and locate(database, con, parts, temporary=False) is None:
        view = ".".join(map(quote, (found.database, found.schema, found.name)))
        return view, [(name, type_) for name, type_, *_ in cursor.execute(f"DESCRIBE FROM {view}").fetchall()]
    entry = database.view(con, parts)
    return table_sql(database.name, entry.name), entry.definition.columns


def _key(request: Request) -> str:
    """Equal for reads of the same rows."""
    return json.dumps([request.get(name) for name in _READ])


def _read(cursor: Connection, request: Request) -> pa.Table:
    """The wanted columns of a view's rows, as the cursor sees them."""
    view, own = readable(cursor, view_name(request))
    wanted = _columns(request, own)
    columns = spark_columns(wanted) or "1 AS one"
    rows = f"FROM {view}{clauses(request)}"
    if request.get("limit"):  # Casts in the query would hide from the tree that it keeps the order.
        names = ", ".join(quote(name) for name, _ in wanted) or "1 AS one"
        with lossless(cursor.session.duck):
            first = cursor.execute(f"SELECT {names} {rows}").to_arrow_table()
        cursor.register("first_rows", first)
        rows = "FROM first_rows"
    return cursor.execute(f"SELECT {columns} {rows}").to_arrow_table()


def _columns(request: Request, own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The wanted ones of a view's columns. ProgrammingError for a name that is none of them."""
    known = {column[0].casefold(): column for column in own}
    unknown = [name for name in request["columns"] if name.casefold() not in known]
    if unknown:
        raise ProgrammingError(
            f"{request['view']} has no column {', '.join(unknown)}",
            why="the schema that was given for the read names it",
            hint=f"its columns are {', '.join(name for name, _ in own)}",
        )
    return [known[name.casefold()] for name in request["columns"]]


def view_name(request: Request) -> list[str]:
    """The parts of the name of the view that a request is about."""
    if not request.get("view"):
        raise ProgrammingError(
            "no view is named",
            why="Spark keeps no options of a CREATE TABLE ... USING a Python data source",
            hint='sqlfront.spark.sql(spark, con, "CREATE TABLE ..."), which makes a temporary view of it, or '
            "CREATE TEMPORARY VIEW v USING sqlfront OPTIONS (view 'v'), or .option('view', 'v')",
        )
    return name_parts(request["view"])

"""Serves views to Spark's Python workers: an Arrow Flight server in the process that holds the database.

The first task of an execution that reads a view pins a *snapshot*: the wanted columns and rows, of one epoch. The
execution's tasks get slices of that table, so all executors, and tasks that run again, see one epoch whatever is
committed meanwhile. Snapshots are dropped, oldest first, when those held together exceed `HELD_BYTES`. Every request
carries the server's secret.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as flight

from sqlfront.database.loading import lossless
from sqlfront.database.names import locate, name_parts
from sqlfront.feeds.feed import HELD_ROWS, Subscription
from sqlfront.spark.clauses import clauses
from sqlfront.sql.search_path import look_up
from sqlfront.storage.capture.trigger_sql import table_sql
from sqlfront.storage.errors import Error, OperationalError, ProgrammingError
from sqlfront.storage.outside.spark_types import spark_columns, spark_schema
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.connection import Connection
    from sqlfront.database.database import ViewEntry

HELD_BYTES = 1 << 30
MOST_REMEMBERED = 1 << 12
_CONTROL = "`_change_type` string, `_commit_version` bigint, `_commit_timestamp` timestamp_ntz"


class ViewServer(flight.FlightServerBase):
    """The views of one database; `address` and `secret` are what a client needs."""

    def __init__(self, connection: Connection, host: str = "127.0.0.1") -> None:
        super().__init__(f"grpc://{host}:0")
        self.address, self.secret = f"grpc://{host}:{self.port}", secrets.token_hex(16)
        self.sources: set[str] = set()  # The names under which Spark knows it.
        self._connection = connection
        self._lock = threading.Lock()
        self._snapshots: OrderedDict[str, pa.Table | None] = OrderedDict()
        self._subscriptions: dict[str, tuple[ViewEntry, Subscription]] = {}

    # Requests: JSON in, JSON or Arrow out ----------------------------------------------------------

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        request = self._request(action.body.to_pybytes())
        answer = {"describe": self._describe, "epoch": self._epoch, "follow": self._follow}
        return [json.dumps(_told(answer[action.type], request)).encode()]

    def do_get(self, context: Any, ticket: Any) -> flight.RecordBatchStream:
        request = self._request(ticket.ticket)
        return flight.RecordBatchStream(_told(self._changes if "start" in request else self._slice, request))

    def _request(self, body: bytes) -> dict[str, Any]:
        request: dict[str, Any] = json.loads(body)
        if not hmac.compare_digest(str(request.get("secret")), self.secret):
            raise flight.FlightUnauthenticatedError("not the secret of this server")
        return request

    def _describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """A view's columns, and its changes' columns, as Spark's DDL."""
        columns = spark_schema(self._readable(request)[1])
        return {"schema": columns, "changes": f"{columns}, {_CONTROL}"}

    def _slice(self, request: dict[str, Any]) -> pa.Table:
        """Part `i` of `n` of what an execution reads of a view: the first part that is asked for pins the snapshot."""
        wanted = ("session", "execution", "view", "columns", "where", "order_by", "limit")
        key = json.dumps([request.get(name) for name in wanted])
        with self._lock:
            if key not in self._snapshots:
                self._snapshots[key] = self._read(request)
                self._drop_oldest()
            table = self._snapshots[key]
        if table is None:
            raise OperationalError(
                f"the snapshot of {request['view']} that this execution reads is not held any more",
                why=f"snapshots of more than {HELD_BYTES >> 20} MB were read since it began",
                hint="run it again",
            )
        i, n = request["part"]
        first, end = table.num_rows * i // n, table.num_rows * (i + 1) // n
        return table.slice(first, end - first)

    def _read(self, request: dict[str, Any]) -> pa.Table:
        """The wanted columns of a view's rows, of the present epoch."""
        view, own = self._readable(request)
        types = {name.casefold(): (name, type_) for name, type_ in own}
        columns = spark_columns(types[name.casefold()] for name in request["columns"]) or "1 AS one"
        with self._connection.cursor() as cursor:
            rows = f"FROM {view}{clauses(request)}"
            if request.get("limit"):  # Casts in the query would hide from the tree that it keeps the order.
                names = ", ".join(quote(types[name.casefold()][0]) for name in request["columns"]) or "1 AS one"
                with lossless(cursor.session.duck):
                    first = cursor.execute(f"SELECT {names} {rows}").to_arrow_table()
                cursor.register("first_rows", first)
                rows = "FROM first_rows"
            return cursor.execute(f"SELECT {columns} {rows}").to_arrow_table()

    def _drop_oldest(self) -> None:
        """Hold no more than `HELD_BYTES`, but always the latest. What was dropped is remembered: to read it again in
        the same execution would mix epochs."""
        held = [key for key, table in self._snapshots.items() if table is not None]
        total = sum(table.nbytes for table in self._snapshots.values() if table is not None)
        for key in held[:-1]:
            if total <= HELD_BYTES:
                break
            total -= self._snapshots[key].nbytes  # type: ignore[union-attr]
            self._snapshots[key] = None
        while len(self._snapshots) > MOST_REMEMBERED:
            self._snapshots.popitem(last=False)

    def _epoch(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"epoch": self._connection.session.database.engine.epoch}

    def _follow(self, request: dict[str, Any]) -> dict[str, Any]:
        """Hold a view's changes from now on: the epoch after which they are held, and the build of the view."""
        entry = self._entry(request)
        name = str(entry.name)
        with self._lock, self._connection.session.database.engine.lock:
            known = self._subscriptions.get(name)
            if known is None or known[0] is not entry:
                with self._connection.cursor() as cursor:
                    buffer = int(request.get("buffer") or HELD_ROWS)
                    found = cursor.view(request["view"]).subscribe(snapshot=False, buffer=buffer)
                assert isinstance(found, Subscription)
                self._subscriptions[name] = entry, found
            return {"epoch": self._connection.session.database.engine.epoch, "build": entry.scan}

    def _changes(self, request: dict[str, Any]) -> pa.Table:
        """A view's changes of the epochs after `start` up to `end`."""
        entry = self._entry(request)
        if request.get("build") not in (None, entry.scan):
            raise ProgrammingError(
                f"materialized view {request['view']} was dropped or replaced",
                why="the stream began on the view before; its changes ended with it",
                hint="start a new stream, with a new checkpoint, which begins with the view of now",
            )
        self._follow(request)
        feed = entry.feed
        tables = feed.after(request["start"]) if feed is not None and request["end"] > request["start"] else []
        columns = [*entry.definition.columns, ("_change_type", "VARCHAR")]
        columns += [("_commit_version", "BIGINT"), ("_commit_timestamp", "TIMESTAMP")]
        with self._connection.cursor() as cursor:
            own = ", ".join(f"CAST(c{i} AS {type_}) AS {quote(name)}" for i, (name, type_) in enumerate(columns))
            if not tables:
                nothing = ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_ in columns)
                return cursor.execute(
                    f"SELECT {spark_columns(columns)} FROM (SELECT {nothing}) LIMIT 0"
                ).to_arrow_table()
            rows = pa.concat_tables(tables).rename_columns([f"c{i}" for i in range(len(columns))])
            cursor.register("__sqlfront_changes", rows)
            query = f"SELECT {spark_columns(columns)} FROM (SELECT {own} FROM __sqlfront_changes)"
            return cursor.execute(f"{query} WHERE _commit_version <= {int(request['end'])}").to_arrow_table()

    def _readable(self, request: dict[str, Any]) -> tuple[str, Sequence[tuple[str, str]]]:
        """A view as SQL calls it, and its columns: a materialized one, or an ordinary one, as shards are read by."""
        parts = self._name(request)
        with self._connection.cursor() as cursor:
            database, con = cursor.session.database, cursor.session.duck
            found = look_up(con, parts, temporary=False).first()
            if found is not None and found.is_view and locate(database, con, parts, temporary=False) is None:
                view = ".".join(map(quote, (found.database, found.schema, found.name)))
                return view, [(name, type_) for name, type_, *_ in cursor.execute(f"DESCRIBE FROM {view}").fetchall()]
            entry = database.view(con, parts)
            return table_sql(database.name, entry.name), entry.definition.columns

    def _entry(self, request: dict[str, Any]) -> ViewEntry:
        parts = self._name(request)
        with self._connection.cursor() as cursor:
            return cursor.session.database.view(cursor.session.duck, parts)

    @staticmethod
    def _name(request: dict[str, Any]) -> list[str]:
        if not request.get("view"):
            raise ProgrammingError(
                "no view is named",
                why="Spark keeps no options of a CREATE TABLE ... USING a Python data source",
                hint='sqlfront.spark.sql(spark, con, "CREATE TABLE ..."), which makes a temporary view of it, or '
                "CREATE TEMPORARY VIEW v USING sqlfront OPTIONS (view 'v'), or .option('view', 'v')",
            )
        return name_parts(request["view"])


def _told(answer: Any, request: dict[str, Any]) -> Any:
    """The answer; our errors as Flight's, with their text."""
    try:
        return answer(request)
    except Error as error:
        raise flight.FlightServerError(str(error)) from error

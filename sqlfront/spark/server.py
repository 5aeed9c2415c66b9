"""Serves views to Spark's Python workers: an Arrow Flight server in the process that holds the database.

Tasks get slices of the snapshot that their execution has pinned (snapshots.py). Every request carries the server's
secret.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as flight

from sqlfront.feeds.feed import HELD_ROWS, Subscription
from sqlfront.spark.plans import Request, job_of, planned_reads
from sqlfront.spark.snapshots import MOST_REMEMBERED, Snapshots, readable, view_name
from sqlfront.storage.codecs.transport import arrived_sql
from sqlfront.storage.errors import Error, ProgrammingError
from sqlfront.storage.outside.spark_types import spark_columns, spark_schema
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.connection import Connection
    from sqlfront.database.entries import ViewEntry

_CONTROL = "`_change_type` string, `_commit_version` bigint, `_commit_timestamp` timestamp_ntz"


class ViewServer(flight.FlightServerBase):
    """The views of one database; `address` and `secret` are what a client needs."""

    def __init__(self, connection: Connection, host: str = "127.0.0.1") -> None:
        super().__init__(f"grpc://{host}:0")
        self.address, self.secret = f"grpc://{host}:{self.port}", secrets.token_hex(16)
        self.sources: set[str] = set()  # The names under which Spark knows it; the last one.
        self.called = ""
        self.spark: Any = None
        self.snapshots = Snapshots(connection, self._planned)
        self._connection = connection
        self._lock = threading.Lock()
        self._jobs: dict[int, str] = {}
        self._subscriptions: dict[str, tuple[ViewEntry, int, Subscription]] = {}

    # Requests: JSON in, JSON or Arrow out ----------------------------------------------------------

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        request = self._request(action.body.to_pybytes())
        answer = {"describe": self._describe, "epoch": self._epoch, "follow": self._follow}
        return [json.dumps(_told(answer[action.type], request)).encode()]

    def do_get(self, context: Any, ticket: Any) -> flight.RecordBatchStream:
        request = self._request(ticket.ticket)
        return flight.RecordBatchStream(_told(self._changes if "start" in request else self._slice, request))

    def _request(self, body: bytes) -> dict[str, Any]:
        request: Request = json.loads(body)
        if not hmac.compare_digest(str(request.get("secret")), self.secret):
            raise flight.FlightUnauthenticatedError("not the secret of this server")
        return request

    def _describe(self, request: Request) -> dict[str, Any]:
        """A view's columns, and its changes' columns, as Spark's DDL."""
        with self._connection.cursor() as cursor:
            columns = spark_schema(readable(cursor, view_name(request))[1])
        return {"schema": columns, "changes": f"{columns}, {_CONTROL}"}

    def _slice(self, request: Request) -> pa.Table:
        """Part `i` of `n` of what an execution reads of a view."""
        if request["execution"] is None:
            request = request | {"execution": self._job(request["stage"])}
        table, (i, n) = self.snapshots.read(request), request["part"]
        first, end = table.num_rows * i // n, table.num_rows * (i + 1) // n
        return table.slice(first, end - first)

    def _planned(self, request: Request) -> list[Request]:
        here = self.spark is not None and request["session"] == self.spark.sparkContext.applicationId
        return planned_reads(self.spark, request["execution"], self.sources) if here else []

    def _job(self, stage: int) -> str:
        """The name, in place of an execution's, of a job over RDDs: all its stages have the same."""
        if stage not in self._jobs:
            job = job_of(self.spark, stage)
            self._jobs[stage] = f"stage {stage}" if job is None else f"job {job}"
            while len(self._jobs) > MOST_REMEMBERED:
                del self._jobs[next(iter(self._jobs))]
        return self._jobs[stage]

    def _epoch(self, request: Request) -> dict[str, Any]:
        return {"epoch": self._connection.session.database.engine.epoch}

    def _follow(self, request: Request) -> dict[str, Any]:
        """Hold a view's changes from now on, as many as the greatest `buffer` of its readers: the epoch after which
        they are held, and the build of the view."""
        entry, buffer = self._entry(request), int(request.get("buffer") or HELD_ROWS)
        name = str(entry.name)
        with self._lock, self._connection.session.database.lock:
            known = self._subscriptions.get(name)
            if known is None or known[0] is not entry or known[1] < buffer:
                with self._connection.cursor() as cursor:
                    found = cursor.view(request["view"]).subscribe(snapshot=False, buffer=buffer)
                assert isinstance(found, Subscription)
                self._subscriptions[name] = entry, buffer, found
                if known is not None and known[0] is entry:
                    known[2].close()
            return {"epoch": self._connection.session.database.engine.epoch, "build": entry.scan}

    def _changes(self, request: Request) -> pa.Table:
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
        changes = feed.after(request["start"]) if feed is not None and request["end"] > request["start"] else []
        columns = [*entry.definition.columns, ("_change_type", "VARCHAR")]
        columns += [("_commit_version", "BIGINT"), ("_commit_timestamp", "TIMESTAMP")]
        with self._connection.cursor() as cursor:
            if not changes:
                nothing = ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_ in columns)
                return cursor.execute(
                    f"SELECT {spark_columns(columns)} FROM (SELECT {nothing}) LIMIT 0"
                ).to_arrow_table()
            tables = [change.lossless for change in changes]
            rows = pa.concat_tables(tables).rename_columns([f"c{i}" for i in range(len(columns))])
            cursor.register("__sqlfront_changes", rows)
            own = ", ".join(
                f"{arrived_sql(f'c{i}', type_, arrow)} AS {quote(name)}"
                for i, ((name, type_), arrow) in enumerate(zip(columns, rows.schema.types, strict=True))
            )
            query = f"SELECT {spark_columns(columns)} FROM (SELECT {own} FROM __sqlfront_changes)"
            return cursor.execute(f"{query} WHERE _commit_version <= {int(request['end'])}").to_arrow_table()

    def _entry(self, request: Request) -> ViewEntry:
        parts = view_name(request)
        with self._connection.cursor() as cursor:
            return cursor.session.database.view(cursor.session.duck, parts)


def _told(answer: Any, request: Request) -> Any:
    """The answer; our errors as Flight's, with their text."""
    try:
        return answer(request)
    except Error as error:
        raise flight.FlightServerError(str(error)) from error

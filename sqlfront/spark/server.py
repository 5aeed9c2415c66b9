"""Serves views to Spark's Python workers: an Arrow Flight server in the process that holds the database.

A read first pins a *snapshot*: the wanted columns and rows of a view, of one epoch. Its partitions are slices of that
table, so all executors see one epoch whatever is committed meanwhile. Snapshots are dropped, oldest first, when those
held together exceed `HELD_BYTES`. Every request carries the server's secret.
"""

from __future__ import annotations

import hmac
import itertools
import json
import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as flight

from sqlfront.feed import HELD_ROWS, Subscription
from sqlfront.names import name_parts
from sqlfront.spark.types import spark_columns, spark_schema, spark_type
from storage.capture_sql import quote, table_sql
from storage.errors import Error, OperationalError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.connection import Connection
    from sqlfront.database import ViewEntry

HELD_BYTES = 1 << 30
ROWS_PER_PARTITION = 1 << 16
_CONTROL = "`_change_type` string, `_commit_version` bigint, `_commit_timestamp` timestamp_ntz"
_TESTS = {
    "EqualTo": "= ?", "EqualNullSafe": "IS NOT DISTINCT FROM ?", "GreaterThan": "> ?", "GreaterThanOrEqual": ">= ?",
    "LessThan": "< ?", "LessThanOrEqual": "<= ?", "IsNull": "IS NULL", "IsNotNull": "IS NOT NULL",
}  # fmt: skip


class ViewServer(flight.FlightServerBase):
    """The views of one database; `address` and `secret` are what a client needs."""

    def __init__(self, connection: Connection, parallelism: int, host: str = "127.0.0.1") -> None:
        super().__init__(f"grpc://{host}:0")
        self.address, self.secret = f"grpc://{host}:{self.port}", secrets.token_hex(16)
        self._connection, self._parallelism = connection, parallelism
        self._lock, self._numbers = threading.Lock(), itertools.count(1)
        self._snapshots: OrderedDict[int, pa.Table] = OrderedDict()
        self._subscriptions: dict[str, Subscription] = {}

    # Requests: JSON in, JSON or Arrow out ----------------------------------------------------------

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        request = self._request(action.body.to_pybytes())
        answer = {"describe": self._describe, "snapshot": self._snapshot, "epoch": self._epoch, "follow": self._follow}
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
        columns = spark_schema(self._entry(request).definition.columns)
        return {"schema": columns, "changes": f"{columns}, {_CONTROL}"}

    def _snapshot(self, request: dict[str, Any]) -> dict[str, Any]:
        """Pin some columns of the rows for which filters hold; the slices that are its partitions."""
        entry = self._entry(request)
        wanted = [name.casefold() for name in request["columns"]]
        types = {name.casefold(): (name, type_) for name, type_ in entry.definition.columns}
        chosen = [types[name] for name in wanted]
        tests, values = _where(request["filters"], types)
        with self._connection._database.engine.lock, self._connection.cursor() as cursor:
            columns = spark_columns(chosen) or "1 AS one"
            view = table_sql(cursor._database.name, entry.name)
            table = cursor.execute(f"SELECT {columns} FROM {view}{tests}", values or None).to_arrow_table()
            epoch = cursor._database.engine.epoch
        number = next(self._numbers)
        with self._lock:
            self._snapshots[number] = table
            while len(self._snapshots) > 1 and sum(held.nbytes for held in self._snapshots.values()) > HELD_BYTES:
                self._snapshots.popitem(last=False)
        rows = table.num_rows
        most = int(request.get("partitions") or self._parallelism)
        count = max(1, most if request.get("partitions") else min(most, -(-rows // ROWS_PER_PARTITION)))
        ends = [rows * (i + 1) // count for i in range(count)]
        return {"snapshot": number, "epoch": epoch, "slices": list(zip([0, *ends[:-1]], ends, strict=True))}

    def _slice(self, request: dict[str, Any]) -> pa.Table:
        with self._lock:
            table = self._snapshots.get(request["snapshot"])
        if table is None:
            raise OperationalError(
                f"the snapshot of epoch {request['epoch']} is not held any more",
                why=f"snapshots of more than {HELD_BYTES >> 20} MB were read since",
                hint="read the view again",
            )
        first, end = request["slice"]
        return table.slice(first, end - first)

    def _epoch(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"epoch": self._connection._database.engine.epoch}

    def _follow(self, request: dict[str, Any]) -> dict[str, Any]:
        """Hold a view's changes from now on; the epoch after which they are held."""
        entry = self._entry(request)
        name = str(entry.name)
        with self._lock, self._connection._database.engine.lock:
            if name not in self._subscriptions:
                with self._connection.cursor() as cursor:
                    buffer = int(request.get("buffer") or HELD_ROWS)
                    found = cursor.view(request["view"]).subscribe(snapshot=False, buffer=buffer)
                assert isinstance(found, Subscription)
                self._subscriptions[name] = found
            return {"epoch": self._connection._database.engine.epoch}

    def _changes(self, request: dict[str, Any]) -> pa.Table:
        """A view's changes of the epochs after `start` up to `end`."""
        entry = self._entry(request)
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

    def _entry(self, request: dict[str, Any]) -> ViewEntry:
        if not request.get("view"):
            raise ProgrammingError(
                "no view is named",
                why="Spark keeps no options of a CREATE TABLE ... USING a Python data source",
                hint="option('view', 'v'), or CREATE TEMPORARY VIEW v USING sqlfront OPTIONS (view 'v')",
            )
        with self._connection.cursor() as cursor:
            return cursor._database.view(cursor._duck, name_parts(request["view"]))


def _where(filters: list[list[Any]], types: dict[str, tuple[str, str]]) -> tuple[str, list[Any]]:
    """A WHERE clause for pushed filters ([kind, column, values]) and its parameters: constants lead to the tree."""
    tests, values = [], []
    for kind, column, given in filters:
        name, type_ = types[column.casefold()]
        # What is a string only in Spark is compared as one.
        operand = f"CAST({quote(name)} AS VARCHAR)" if spark_type(type_)[1] == "VARCHAR" else quote(name)
        if kind == "In":
            tests.append(f"{operand} IN ({', '.join('?' * len(given))})")
        else:
            tests.append(f"{operand} {_TESTS[kind]}")
        values += given
    return (" WHERE " + " AND ".join(tests) if tests else ""), values


def _told(answer: Any, request: dict[str, Any]) -> Any:
    """The answer; our errors as Flight's, with their text."""
    try:
        return answer(request)
    except Error as error:
        raise flight.FlightServerError(str(error)) from error

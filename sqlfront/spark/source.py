"""The Spark data source `sqlfront`: maintained views as tables, and their changes as streams.

Its methods run in Spark's Python workers, on the driver's machine and on executors, and ask the server (server.py) in
the process that holds the database.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sqlfront.storage.errors import ProgrammingError


class Part(InputPartition):
    """One request for rows."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(json.dumps(request))


class Client:
    """Asks the server."""

    def __init__(self, address: str, secret: str, options: dict[str, str]) -> None:
        self.address, self.secret, self.options = address, secret, options

    def ask(self, what: str, **request: Any) -> dict[str, Any]:
        body = json.dumps({**self.options, **request, "secret": self.secret}).encode()
        with flight.connect(self.address) as client:
            [answer] = client.do_action(flight.Action(what, body))
            return dict(json.loads(answer.body.to_pybytes()))

    def rows(self, part: InputPartition, schema: pa.Schema, **more: Any) -> Iterator[pa.RecordBatch]:
        request = {**self.options, **json.loads(part.value), **more, "secret": self.secret}
        with flight.connect(self.address) as client:
            for chunk in client.do_get(flight.Ticket(json.dumps(request).encode())):
                batch = chunk.data
                columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=False)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


class ViewSource(DataSource):
    """`spark.read.format("sqlfront").option("view", "v")`: a maintained view.

    Options: `view`; `partitions`, how many; `where`, a condition in DuckDB's SQL on the rows that are wanted, whose
    equalities lead to the tree; `order_by` and `limit`, for the first rows, which the tree finds where it keeps that
    order. A read with a schema of fewer columns moves only those.
    """

    address, secret, called, session, parallelism = "", "", "sqlfront", "", 1
    known: tuple[str, ...] = ("view", "partitions", "where", "order_by", "limit")

    @classmethod
    def name(cls) -> str:
        return cls.called

    def _client(self) -> Client:
        # What begins with "option." and the rest are a table's properties: Spark gives them for CREATE TABLE ... USING.
        given = (name for name in self.options if name.casefold() not in ("owner", "provider", "path", "location"))
        unknown = sorted(name for name in given if name.casefold() not in self.known and not name.startswith("option."))
        if unknown:
            raise ProgrammingError(
                f"unknown option {', '.join(unknown)} of {self.called}", hint=f"its options are {', '.join(self.known)}"
            )
        return Client(self.address, self.secret, {**self.options, "session": self.session})

    def schema(self) -> str:
        return str(self._client().ask("describe")["schema"])

    def reader(self, schema: StructType) -> DataSourceReader:
        return ViewReader(self._client(), schema, self.parallelism)


class ChangeSource(ViewSource):
    """`spark.readStream.format("sqlfront_changes").option("view", "v")`: the changes of a maintained view.

    Options: `view`; `after`, an epoch to go on from; `buffer`, how many changed rows are held for readers.
    """

    called = "sqlfront_changes"
    known = ("view", "after", "buffer")

    def schema(self) -> str:
        return str(self._client().ask("describe")["changes"])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ChangeReader(self._client(), schema)


class ViewReader(DataSourceReader):
    """Reads a view in slices of the snapshot that its execution has pinned.

    Spark asks a loaded DataFrame once for its partitions, so they name no snapshot; and it keeps the filters that were
    pushed into it for all that is done with it later, so none are taken here.
    """

    def __init__(self, client: Client, schema: StructType, parallelism: int) -> None:
        self._client, self._schema = client, schema
        self._count = _whole(client.options, "partitions", parallelism, 1)

    def partitions(self) -> Sequence[InputPartition]:
        return [Part({"part": [i, self._count], "columns": self._schema.names}) for i in range(self._count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        own = {"execution": task.getLocalProperty("spark.sql.execution.id"), "stage": task.stageId()}
        yield from self._client.rows(partition, to_arrow_schema(self._schema, timezone="UTC"), **own)


class ChangeReader(DataSourceStreamReader):
    """Reads a view's changes between two epochs. The offset names the build of the view, which CREATE makes anew."""

    def __init__(self, client: Client, schema: StructType) -> None:
        self._client, self._schema = client, schema
        _whole(client.options, "buffer", 1, 1)

    def initialOffset(self) -> dict:
        held = self._client.ask("follow")
        return {"epoch": _whole(self._client.options, "after", held["epoch"], 0), "build": held["build"]}

    def latestOffset(self, start: dict, limit: Any) -> dict:
        return {"epoch": self._client.ask("epoch")["epoch"], "build": start.get("build")}

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        return [Part({"start": start["epoch"], "end": end["epoch"], "build": start.get("build")})]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._client.rows(partition, to_arrow_schema(self._schema, timezone="UTC"))


def _whole(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    """The whole number that an option gives; ProgrammingError for any other value."""
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise ProgrammingError(f"option {name} is {text!r}", hint=f"give a whole number from {least} on")
    return int(text)

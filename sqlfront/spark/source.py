"""The Spark data source `sqlfront`: maintained views as tables, and their changes as streams.

Its methods run in Spark's Python workers, on the driver's machine and on executors, and ask the server (server.py) in
the process that holds the database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

# Only filters over values of these types are pushed: they mean the same in DuckDB.
_VALUES = (int, str, bool)
_PUSHED = {
    "EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In", "IsNull",
    "IsNotNull",
}  # fmt: skip


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

    def rows(self, part: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        request = {**self.options, **json.loads(part.value), "secret": self.secret}
        with flight.connect(self.address) as client:
            for chunk in client.do_get(flight.Ticket(json.dumps(request).encode())):
                batch = chunk.data
                columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=False)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


class ViewSource(DataSource):
    """`spark.read.format("sqlfront").option("view", "v")`: a maintained view.

    Options: `view`; `partitions`, how many. A read with a schema of fewer columns moves only those.
    """

    address, secret, called = "", "", "sqlfront"

    @classmethod
    def name(cls) -> str:
        return cls.called

    def _client(self) -> Client:
        return Client(self.address, self.secret, {key: self.options[key] for key in self.options})

    def schema(self) -> str:
        return str(self._client().ask("describe")["schema"])

    def reader(self, schema: StructType) -> DataSourceReader:
        return ViewReader(self._client(), schema)


class ChangeSource(ViewSource):
    """`spark.readStream.format("sqlfront_changes").option("view", "v")`: the changes of a maintained view.

    Options: `view`; `after`, an epoch to go on from; `buffer`, how many changed rows are held for readers.
    """

    called = "sqlfront_changes"

    def schema(self) -> str:
        return str(self._client().ask("describe")["changes"])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ChangeReader(self._client(), schema)


class ViewReader(DataSourceReader):
    """Reads one snapshot of a view, in slices."""

    def __init__(self, client: Client, schema: StructType) -> None:
        self._client, self._schema = client, schema
        self._filters: list[list[Any]] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that the server applies; Spark applies the others."""
        for one in filters:
            column: tuple[str, ...] = getattr(one, "attribute", ())
            given: Any = getattr(one, "value", ())
            values = list(given) if isinstance(given, tuple) else [given]
            whole = type(one).__name__ in _PUSHED and len(column) == 1 and all(type(v) in _VALUES for v in values)
            if whole and not (type(one).__name__ == "In" and not values):
                self._filters.append([type(one).__name__, column[0], values])
            else:
                yield one

    def partitions(self) -> Sequence[InputPartition]:
        found = self._client.ask("snapshot", columns=self._schema.names, filters=self._filters)
        return [Part({"snapshot": found["snapshot"], "epoch": found["epoch"], "slice": s}) for s in found["slices"]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._client.rows(partition, to_arrow_schema(self._schema))


class ChangeReader(DataSourceStreamReader):
    """Reads a view's changes between two epochs."""

    def __init__(self, client: Client, schema: StructType) -> None:
        self._client, self._schema = client, schema

    def initialOffset(self) -> dict:
        held = self._client.ask("follow")["epoch"]
        return {"epoch": int(self._client.options.get("after", held))}

    def latestOffset(self, start: dict, limit: Any) -> dict:
        return {"epoch": self._client.ask("epoch")["epoch"]}

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        return [Part({"start": start["epoch"], "end": end["epoch"]})]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._client.rows(partition, to_arrow_schema(self._schema))

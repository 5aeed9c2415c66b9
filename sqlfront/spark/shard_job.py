"""A view in shards as a Structured Streaming job: rows are routed, shuffled by shard, and applied where they arrive.

Spark's state store holds each shard's log and commits it with the micro-batch; the engines live in its Python workers.
What is shuffled are pieces of Arrow, one for each shard, stream and task.

Spark looks at the processor in a process of its own before it starts the job. So nothing here loads the engine before a
worker needs it: that would take longer than a micro-batch.
"""

from __future__ import annotations

import atexit
import functools
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import IntegerType, LongType, StructType

from sqlfront.shards.shard_log import START, At, ShardDelta, ShardLog, pack, unpack
from sqlfront.storage.errors import ProgrammingError
from sqlfront.storage.outside.change_shapes import WEIGHT, Wanted
from sqlfront.storage.outside.spark_source import signed_frame
from sqlfront.storage.outside.spark_types import spark_schema, spark_type
from sqlfront.storage.sql_text import literal, quote

if TYPE_CHECKING:
    from sqlfront.connection import Connection
    from sqlfront.database.loading import Evaluator
    from sqlfront.shards.routes import Router
    from sqlfront.shards.shard_plan import ShardPlan

SHARD, VERSION = "_shard", "_commit_version"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_MARK = "sqlfront shards"  # Begins the comment of a view that shards keep.
GATHERED = 1 << 18  # Rows that are routed at once.
_PIECES = "key INT, stream INT, count BIGINT, rows BINARY"


class ShardedView:
    """A view that is kept in shards while a streaming query runs over `changes`.

    `plan` says what is sent where and what the shards keep; `columns` are those of their rows.
    """

    def __init__(
        self, connection: Connection, plan: ShardPlan, frames: Mapping[str, Any], shape: str,
        processor: type[ShardProcessor],
    ) -> None:  # fmt: skip
        self._connection, self.plan = connection, plan
        query = uuid.uuid4().hex
        keys = spread_keys(next(iter(frames.values())).sparkSession, plan.partitioning.shards)
        sent = [_pieces(plan, keys, table, frame, shape) for table, frame in frames.items()]
        pieces = functools.reduce(lambda one, other: one.union(other), sent)
        answers = pieces.groupBy("key").transformWithStateInPandas(
            statefulProcessor=processor(plan, query, {key: shard for shard, key in enumerate(keys)}),
            outputStructType="shard INT, version BIGINT, rows BINARY",
            outputMode="Append",
            timeMode="None",
        )
        schema: Any = StructType.fromDDL(spark_schema(plan.columns))
        schema = schema.add(WEIGHT, LongType()).add(SHARD, IntegerType()).add(VERSION, LongType())
        self._changes = answers.mapInArrow(_opener(to_arrow_schema(schema)), schema)

    @property
    def changes(self) -> Any:
        """The changed rows of all shards, a streaming DataFrame: their columns, `_weight` (how many copies more or, if
        negative, less), `_shard` and `_commit_version`, the number of the shard's epoch. Write it anywhere.

        They are the view's own changes where `plan.combination.whole`, else `query` makes the view of their sum: of a
        product they are the changes of its components, and a materialized view of that query tells those of the view.
        """
        return self._changes

    def query(self, table: str) -> str:
        """The view's rows as DuckDB's SQL over a table that holds the shards' rows."""
        return self.plan.combination.query(table)

    def into(self, name: str, *, checkpoint: str, trigger: Mapping[str, Any] | None = None) -> Any:
        """Keep the view `name` in the connection's database file; the StreamingQuery that does so.

        The shards' rows are in the change table `name`_parts, each micro-batch exactly once, and the view is an
        ordinary one over it: nothing is maintained here. ProgrammingError, before anything changes, if the view is
        there by another plan: of another query, number of shards, or sizes.
        """
        con, parts = self._connection, f"{name}_parts"
        mark = f"{_MARK} {self.plan.fingerprint}"
        self._refuse_other(name, mark)
        columns = ", ".join(f"{quote(column)} {type_}" for column, type_ in self.plan.columns)
        con.execute(f"CREATE CHANGE TABLE IF NOT EXISTS {quote(parts)} ({columns})")
        con.execute(f"CREATE OR REPLACE VIEW {quote(name)} AS {self.query(quote(parts))}")
        con.execute(f"COMMENT ON VIEW {quote(name)} IS {literal(mark)}")
        rows = self._changes.drop(SHARD, VERSION)
        return con.register_changes(
            quote(parts), rows, shape="weight", name="shards", checkpoint=checkpoint, trigger=trigger
        )

    def _refuse_other(self, name: str, mark: str) -> None:
        """Raise if shards of another plan keep a view of this name: its rows would be read by the wrong query."""
        named = "database_name = current_database() AND lower(view_name) = lower(?)"
        rows = self._connection.execute(f"SELECT comment FROM duckdb_views() WHERE {named}", [name]).fetchall()
        kept = [row[0] for row in rows if row[0]]
        if any(comment.startswith(_MARK) and comment != mark for comment in kept):
            raise ProgrammingError(
                f"view {name} is kept by another plan",
                why="its shards' rows are those of another query, number of shards or sizes of tables",
                hint=f"start with the same ones, or take another name, or DROP VIEW {name} and "
                f"DROP CHANGE TABLE {name}_parts, and begin with a new checkpoint",
            )


class ShardProcessor(StatefulProcessor):
    """Runs in Spark's Python workers, once for each partition of each micro-batch, and for each shard in it."""

    def __init__(self, plan: ShardPlan, query: str, shards: Mapping[int, int]) -> None:
        self._packed, self._query, self._shards = pickle.dumps(plan), query, shards

    @property
    def _plan(self) -> ShardPlan:
        return _unpacked(self._packed)

    def init(self, handle: Any) -> None:
        self._log = StateLog(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        from sqlfront.shards.shard import advance

        pieces = [
            ShardDelta(int(stream), bytes(data), int(count))
            for frame in rows
            for stream, data, count in zip(frame["stream"], frame["rows"], frame["count"], strict=True)
        ]
        number = self._shards[int(key[0])]
        change = advance(self._plan, self._query, number, self._log, pieces)
        if change is not None and change.num_rows:
            packed = pack(0, self._for_spark(change)).rows
            yield pd.DataFrame({"shard": [number], "version": [self._log.at().number], "rows": [packed]})

    def close(self) -> None:
        """Nothing: the engines stay for the next micro-batch."""

    def _for_spark(self, change: pa.Table) -> pa.Table:
        """The rows in types that Spark has."""
        casts = [f"CAST({quote(name)} AS {spark_type(type_)[1] or type_})" for name, type_ in self._plan.columns]
        types = {**dict(self._plan.columns), WEIGHT: "BIGINT"}
        return _evaluator()(change, types, [*casts, WEIGHT])


@functools.lru_cache(8)
def _unpacked(packed: bytes) -> ShardPlan:
    plan: ShardPlan = pickle.loads(packed)
    return plan


@functools.cache
def _evaluator() -> Evaluator:
    """One for the process: its connection outlives the micro-batch."""
    from sqlfront.database.loading import Evaluator

    return Evaluator()


@functools.lru_cache(8)
def _router(plan: ShardPlan) -> Router:
    from sqlfront.shards.routes import Router

    return Router(plan)


@atexit.register
def _let_go() -> None:
    """Drop DuckDB's objects while its module is still there."""
    _evaluator.cache_clear()
    _router.cache_clear()


class StateLog(ShardLog):
    """The log of a shard in Spark's state store: of the key for which it is asked."""

    def __init__(self, handle: Any) -> None:
        place = "number BIGINT, token STRING"
        pieces = f"{place}, stream INT, count BIGINT, rows BINARY"
        self._where = handle.getValueState("at", f"{place}, kept BIGINT, since BIGINT, base BIGINT, base_token STRING")
        self._kept = handle.getListState("snapshot", pieces)
        self._since = handle.getListState("log", pieces)

    def at(self) -> At:
        found = self._where.get()
        return START if found is None else At(int(found[0]), str(found[1]))

    def base(self) -> At:
        found = self._where.get()
        return START if found is None else At(int(found[4]), str(found[5]))

    def rows(self) -> tuple[int, int]:
        found = self._where.get()
        return (0, 0) if found is None else (int(found[2]), int(found[3]))

    def snapshot(self) -> Iterable[ShardDelta]:
        return [piece for _, piece in _read(self._kept)]

    def entries(self) -> Iterable[tuple[At, ShardDelta]]:
        return list(_read(self._since))

    def add(self, at: At, rows: tuple[int, int], pieces: Sequence[ShardDelta]) -> None:
        self._where.update((*at, *rows, *self.base()))
        self._since.appendList([_row(at, piece) for piece in pieces])

    def replace(self, at: At, rows: tuple[int, int], snapshot: Sequence[ShardDelta]) -> None:
        self._where.update((*at, *rows, *at))
        self._since.clear()
        self._kept.clear()
        if snapshot:
            self._kept.put([_row(at, piece) for piece in snapshot])


def _read(state: Any) -> Iterator[tuple[At, ShardDelta]]:
    for number, token, stream, count, rows in state.get() if state.exists() else ():
        yield At(int(number), str(token)), ShardDelta(int(stream), bytes(rows), int(count))


def _row(at: At, piece: ShardDelta) -> tuple[Any, ...]:
    return (*at, piece.stream, piece.count, piece.rows)


def start_shards(
    connection: Connection, plan: ShardPlan, streams: Mapping[str, Any], shape: str,
    processor: type[ShardProcessor] = ShardProcessor,
) -> ShardedView:  # fmt: skip
    """The job of a plan over streaming DataFrames, one for each table, by the names of the plan."""
    taken = {name.casefold() for name, _ in plan.columns} & {WEIGHT, SHARD, VERSION}
    if taken:
        raise ProgrammingError(
            f"a view in shards cannot have a column {min(taken)}",
            why="its changes have that column beside the view's",
            hint="give the column another name in the SELECT",
        )
    for table, frame in streams.items():
        if not frame.isStreaming:
            raise ProgrammingError(
                f"the DataFrame of {table} does not stream",
                hint="spark.readStream; it also reads what is there already",
            )
        provider = frame.sparkSession.conf.get(PROVIDER)
        if provider != ROCKSDB:
            raise ProgrammingError(
                "Spark's state store cannot hold shards",
                where=f"{PROVIDER} = {provider}",
                why="transformWithState needs the RocksDB state store",
                hint=f'spark.conf.set("{PROVIDER}", "{ROCKSDB}"); sessions of sqlfront.spark.session.start have it',
            )
    return ShardedView(connection, plan, streams, shape, processor)


def spread_keys(spark: Any, shards: int) -> list[int]:
    """Numbers for shards by which Spark, which hashes them, has as many shards in each partition as in any other.

    That of shard s is hashed to partition s of `shards` ones, and so to s modulo P of P if P divides `shards`. They
    depend on nothing else: a checkpoint's are those of any later start.
    """
    rows = spark.range(40 * shards + 400).selectExpr("id", f"pmod(hash(CAST(id AS INT)), {shards}) AS part")
    found = {int(part): int(key) for key, part in rows.orderBy(rows.id.desc()).collect()}
    return [found[shard] for shard in range(shards)]


def _pieces(plan: ShardPlan, keys: Sequence[int], table: str, frame: Any, shape: str) -> Any:
    """A table's changes on their way: Spark projects and filters, its Python workers route."""
    columns = dict(plan.tables)[table]
    own = [number for number, stream in enumerate(plan.streams) if stream.table == table]
    read = frozenset(column.name.casefold() for number in own for column in plan.sent[number])
    tests = [plan.streams[number].conditions for number in own]
    conditions = None if None in tests else tuple(dict.fromkeys(text for some in tests for text in some or ()))
    wanted = Wanted(tuple((column.name, column.type) for column in columns), read, conditions)
    return signed_frame(frame, shape, wanted).mapInArrow(_sender(plan, keys, table), _PIECES)


def _sender(
    plan: ShardPlan, keys: Sequence[int], table: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    pieces: Any = StructType.fromDDL(_PIECES)
    schema = to_arrow_schema(pieces)

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _gathered(batches):
            for shard, stream, routed in _router(plan).route(table, rows):
                piece = pack(stream, routed)
                row = {"key": keys[shard], "stream": stream, "count": piece.count, "rows": piece.rows}
                yield pa.RecordBatch.from_pylist([row], schema=schema)

    return send


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches, of which Spark makes small ones, as tables of some size: fewer pieces travel."""
    found: list[pa.RecordBatch] = []
    for batch in batches:
        found.append(batch)
        if sum(one.num_rows for one in found) >= GATHERED:
            yield pa.Table.from_batches(found)
            found = []
    if found:
        yield pa.Table.from_batches(found)


def _opener(schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """From pieces of changed rows to the rows, with the shard and its epoch."""

    def open_(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for answer in batch.to_pylist():
                rows = unpack(answer["rows"]).combine_chunks()
                numbers = [pa.repeat(answer[name], rows.num_rows) for name in ("shard", "version")]
                values = [column.combine_chunks() for column in rows.columns]
                columns = [value.cast(field.type) for value, field in zip([*values, *numbers], schema, strict=True)]
                yield from pa.Table.from_arrays(columns, schema=schema).to_batches()

    return open_

"""Streaming DataFrames into change tables: each micro-batch is an epoch that commits (query, batch) with its rows.

Spark gives a batch again after a failure, with the same number and rows; the offset in the file says whether it has
been committed. So every batch counts exactly once, whatever is killed when.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from sqlfront.database.entries import ChangeTable
from sqlfront.database.names import shown
from sqlfront.database.sessions import Session
from sqlfront.feeds.table_sources import take, wanted_of
from sqlfront.storage.errors import NotSupportedError, OperationalError
from sqlfront.write.dml import unit


def follow(
    session: Session, table: ChangeTable, frame: Any, *, shape: str, name: str | None, checkpoint: str | None,
    trigger: dict[str, Any] | None,
) -> Any:  # fmt: skip
    """Start a streaming query that feeds a change table, and return it (a pyspark StreamingQuery)."""
    if not table.durable:
        raise NotSupportedError(
            f"a stream into change table {shown(table.name)}",
            why="the table is not durable: after a restart Spark would go on behind what was lost",
            hint="connect to a file and leave durable = true, its default there",
        )
    if checkpoint is None:
        raise NotSupportedError(
            f"a stream into change table {shown(table.name)} without a checkpoint",
            why="Spark could not tell after a restart which batches it has given",
            hint="register_changes(..., checkpoint='directory')",
        )
    source = name or "stream"

    def batch(rows: Any, number: int) -> None:
        with closing(Session(session.database)) as own:
            take_batch(own, table, rows, shape, source, number)

    writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()


def take_batch(session: Session, table: ChangeTable, rows: Any, shape: str, source: str, number: int) -> None:
    """Commit a micro-batch as one epoch, unless it has been committed; then it is only read through.

    OperationalError if another query, of another checkpoint, has fed the table under this name.
    """
    from sqlfront.storage.outside.spark_source import changes_of

    database = session.database
    query = str(rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
    with database.attached.lock(table.scan):
        last = database.offsets.get((table.scan, source))
        if last is not None and last["query"] != query:
            raise OperationalError(
                f"another stream has fed change table {shown(table.name)}",
                where=f"query {last['query']}, up to batch {last['batch']}",
                why=f"this one is query {query}: its checkpoint is new, and it would give the same changes again",
                hint="use the former checkpoint; a stream of other changes needs another name=...",
            )
        if last is not None and number <= last["batch"]:
            # What Spark itself keeps of the stream (the state of shards) is committed by tasks that run.
            rows.write.format("noop").mode("overwrite").save()
            return
        wanted = wanted_of(database, table)
        changes = changes_of(rows, shape, wanted)
        session.ready()
        with unit(session) as transaction:
            take(transaction, table, source, changes, {"query": query, "batch": number}, wanted)

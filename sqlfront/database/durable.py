"""Durable change tables: what an epoch changes in them goes to the database file with it, and comes back from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sqlfront.database.database import Database
from sqlfront.database.entries import ChangeTable
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from sqlfront.maintenance.engine import Change
    from sqlfront.storage.outside.epoch_log import Changes


def settle_durability(database: Database, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a new change table with `durable` told: by default what lives in a file is durable.

    NotSupportedError for a durable table without a file.
    """
    if options.get("durable") and database.in_memory:
        raise NotSupportedError(
            "a change table in a :memory: database cannot be durable",
            why="there is no file to keep it in",
            hint="leave durable out, or connect to a file: sqlfront.connect('orders.duckdb')",
        )
    return {**options, "durable": bool(options.get("durable", not database.in_memory))}


def log_changes(
    database: Database, con: Any, tables: Mapping[str, ChangeTable], changes: Mapping[str, Change], epoch: int
) -> dict[int, int]:
    """Append the netted changes of durable tables, in the transaction of `con`; the number of rows by log.

    `tables` are by the engine's names, as are the `changes`. O(changes).
    """
    import numpy as np

    from sqlfront.maintenance.program.netting import net

    appended = {}
    for relation, table in tables.items():
        if not table.durable:
            continue
        change = changes[relation]
        weights = change.weights if change.weights is not None else np.ones(change.rows.num_rows, np.int64)
        positions, sums = net(change.rows.columns, weights)
        if len(positions):
            database.log.append(con, table.scan, epoch, change.rows.take(positions), sums, table.types)
            appended[table.scan] = len(positions)
    return appended


def log_epoch(database: Database, undo: ExitStack, changes: Changes) -> None:
    """Write an epoch that has been applied, and is about to be committed, to the log of the snapshot. The engine's lock
    is held."""
    for log in database.logs:
        log.append(changes)
        undo.callback(log.take_back)


def compact_logs(database: Database, *, now: bool) -> None:
    """Rewrite the logs that have grown as their net rows, in a transaction of its own: all that have (`now`), or those
    that are worth it. O(log)."""
    from sqlfront.database.transactions import transaction

    if database.read_only:
        return
    with database.lock:
        grown = [t for t in database.change_tables.values() if database.log.wants_compaction(t.scan, now=now)]
        if not grown:
            return
        con = database.cursor()
        try:
            with transaction(con):
                for table in grown:
                    database.log.compact(con, table.scan, table.types, _kept(database, table))
        finally:
            con.close()


def replay(database: Database, con: Any) -> None:
    """Fill the durable change tables that keep their rows from their logs; the others' fill their views' stores as
    these are built (`logged_rows`). O(log)."""
    for table in database.change_tables.values():
        if table.durable and table.retain:
            rows = logged_rows(database, con, table)
            count = database.log.count(con, table.scan)
            database.engine.fill_table(database.relation_key(table.name), rows, count)


def logged_rows(database: Database, con: Any, table: ChangeTable) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The net rows of a durable change table by its log, as batches and weights."""
    from sqlfront.database.user_settings import lossless

    names = [column.name for column in table.columns]
    with lossless(con):
        for batch, weights in database.log.rows(con, table.scan, table.types):
            yield batch.rename_columns(names), weights


def _kept(database: Database, table: ChangeTable) -> list[bool] | None:
    """Which columns a compacted log must have; None: all. A table that keeps no rows needs what its views read."""
    from sqlfront.maintenance.relation.reach import columns_read

    if table.retain or database.unbuilt or any(entry.maintained.broken for entry in database.views.values()):
        return None
    read = columns_read(database.engine.relations[database.relation_key(table.name)])
    return [column.name.casefold() in read for column in table.columns]

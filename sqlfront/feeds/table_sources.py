"""Sources of change tables: registered in SQL or Python, taken in as epochs that commit their offsets too."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sqlfront.database.database import Database
from sqlfront.database.entries import ChangeTable, lost
from sqlfront.database.names import name_parts, shown
from sqlfront.maintenance.relation.reach import columns_read, conditions
from sqlfront.storage.errors import InterfaceError, OperationalError, ProgrammingError
from sqlfront.storage.outside.change_shapes import VERSION, Wanted
from sqlfront.storage.outside.sources import ArrowSource, ChangeSource, make_source
from sqlfront.write.changes import read_changes
from sqlfront.write.dml import unit

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session
    from sqlfront.maintenance.epoch import Epoch


def register_changes(
    session: Session, table_name: str, source: Any, *, shape: str, version: str | None, name: str | None,
    checkpoint: str | None, trigger: dict[str, Any] | None,
) -> Any:  # fmt: skip
    """Give a change table a source; see Connection.register_changes."""
    table = _table(session, name_parts(table_name))
    if _is_spark(source) and source.isStreaming:
        from sqlfront.feeds.streaming import follow

        return follow(session, table, source, shape=shape, name=name, checkpoint=checkpoint, trigger=trigger)
    if checkpoint is not None or trigger is not None:
        raise ProgrammingError("checkpoint and trigger belong to streaming DataFrames", hint="leave them out")
    found = _as_source(source, shape, version or VERSION, name)
    if name is None and found is not source:
        _refuse_second(session.database, table, found)
    session.database.attached.sources[table.scan] = found
    return pull(session, [name_parts(table_name)])


def _refuse_second(database: Database, table: ChangeTable, source: ChangeSource) -> None:
    """Refuse another source under a default name: what the first has given would count as taken in from the second."""
    before = database.attached.sources.get(table.scan)
    if before is not None and before.name == source.name and (table.scan, source.name) in database.offsets:
        raise ProgrammingError(
            f"change table {shown(table.name)} has taken in a source under the name {source.name!r}",
            why="that is the name of a source without one: the new source would count as read, or its first part",
            hint="give the new source a name of its own: register_changes(..., name='...')",
        )


def pull(session: Session, names: Sequence[Sequence[str]]) -> Epoch | None:
    """Take in what is new at the sources of change tables, as one epoch; the last one, if it is one table's source and
    gives several. None if nothing is new."""
    database = session.database
    if session.transaction is not None:
        raise ProgrammingError(
            "REFRESH CHANGE TABLE cannot run inside a transaction",
            why="what it takes in is committed with the offset up to which it has read",
            hint="COMMIT first",
        )
    tables = sorted((_table(session, parts) for parts in names), key=lambda table: table.scan)
    epoch = None
    with ExitStack() as locks:
        for table in tables:
            locks.enter_context(database.attached.lock(table.scan))
        found = ((table, rows, at) for table in tables for rows, at in news(database, table))
        if len(tables) > 1:
            return _commit(session, list(found))
        for item in found:
            epoch = _commit(session, [item]) or epoch
    return epoch


def wanted_of(database: Database, table: ChangeTable) -> Wanted:
    """What a table wants of its source: everything if it keeps its rows, else what its views read."""
    columns = tuple((column.name, column.type) for column in table.columns)
    if table.retain:
        return Wanted(columns)
    with database.lock:
        relation = database.engine.relations[database.relation_key(table.name)]
        needed = conditions(relation)
        keys = tuple(frozenset(map(str.casefold, key)) for key in table.keys)
        return Wanted(columns, frozenset(columns_read(relation)), None if needed is None else tuple(needed), keys)


def take(transaction: Any, table: ChangeTable, source: str, rows: Any, position: Any, wanted: Wanted) -> None:
    """Note rows of a source and the offset behind them in a transaction."""
    unread = frozenset() if wanted.read is None else {name.casefold() for name, _ in wanted.columns} - wanted.read
    own, weights = read_changes(shown(table.name), table.columns, rows, table.defaults, unread)
    if own.num_rows:
        transaction.add(table, own, weights)
    transaction.note_offset(table, source, position)


def _commit(session: Session, items: Sequence[tuple[ChangeTable, Any, Any]]) -> Epoch | None:
    database = session.database
    session.ready()
    with unit(session) as transaction:
        for table, rows, position in items:
            source = database.attached.sources[table.scan]
            take(transaction, table, source.name, rows, position, wanted_of(database, table))
    return transaction.epoch


def news(database: Database, table: ChangeTable) -> Any:
    """What is new at a table's source, as (rows, the offset behind them)."""
    source = _source(database, table)
    after = database.offsets.get((table.scan, source.name))
    return source.read(after, wanted_of(database, table))


def _table(session: Session, parts: Sequence[str]) -> ChangeTable:
    table = session.database.change_table(session.duck, parts)
    if table is None:
        raise ProgrammingError(f"there is no change table {'.'.join(parts)}", hint="SHOW CHANGE TABLES lists them")
    if table.lost is not None:
        raise lost(f"change table {shown(table.name)}", table)
    return table


def _source(database: Database, table: ChangeTable) -> ChangeSource:
    """The table's source: what has been registered, or that of its CREATE statement, opened at first need."""
    sources, declared = database.attached.sources, table.options.get("source")
    if table.scan in sources:
        return sources[table.scan]
    if declared is None:
        raise ProgrammingError(
            f"change table {shown(table.name)} has no source",
            hint="con.register_changes(table, source), or CREATE CHANGE TABLE ... FROM kind OPTIONS (...)",
        )
    kind, options = declared["kind"], declared["options"]
    if kind == "spark":
        sources[table.scan] = _spark_table(database, options)
    else:
        sources[table.scan] = make_source(f"{kind}:{sorted(options.items())}", kind, options, database.root.cursor)
    return sources[table.scan]


def _spark_table(database: Database, options: dict[str, str]) -> ChangeSource:
    from sqlfront.storage.outside.spark_source import SparkTableSource

    session = database.spark
    if session is None:
        raise OperationalError(
            f"Spark's table {options['table']} cannot be read",
            why="this database has no Spark session",
            hint="sqlfront.spark.register(spark, con) first",
        )
    return SparkTableSource(session, options["table"], options.get("shape", "auto"), options.get("version", VERSION))


def _as_source(source: Any, shape: str, version: str, name: str | None) -> ChangeSource:
    if isinstance(source, ChangeSource):
        return source
    if _is_spark(source):
        from sqlfront.storage.outside.spark_source import SparkSource

        return SparkSource(name or "spark", source, shape, version)
    arrow = hasattr(source, "__arrow_c_stream__") or hasattr(source, "__iter__")
    if not arrow or isinstance(source, (str, bytes, dict)):
        raise InterfaceError(
            f"a {type(source).__name__} is no source of changes",
            hint="a Spark DataFrame, a stream or iterable of Arrow tables, or an object with `name` and `read`",
        )
    return ArrowSource(name or "arrow", source, shape)


def _is_spark(source: Any) -> bool:
    return type(source).__module__.startswith("pyspark.sql") and hasattr(source, "isStreaming")

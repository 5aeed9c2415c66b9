"""`con.apply` and `con.apply_row`: batches of changes as one epoch, on change tables and on ordinary ones.

Ordinary tables are written through DuckDB (write_through.py); change tables go to the engine.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from sqlfront.database.entries import ChangeTable, lost
from sqlfront.database.names import name_parts
from sqlfront.maintenance.engine import Change
from sqlfront.storage.errors import DataError, ProgrammingError
from sqlfront.write.changes import as_arrow, read_changes
from sqlfront.write.dml import unit
from sqlfront.write.write_through import insert_rows, net_changes, table_columns, write_netted

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session
    from sqlfront.maintenance.epoch import Epoch


def apply(session: Session, changes: Mapping[str, Any]) -> Epoch | None:
    """Apply changes of several tables as one epoch; see Connection.apply."""
    database = session.database
    if not isinstance(changes, Mapping):
        raise ProgrammingError("apply takes a mapping from table names to changes", hint="con.apply({'t': changes})")
    started = time.perf_counter()
    tables = {name: _change_table(session, name) for name in changes}
    _refuse_doubled(session, tables)
    if session.transaction is None and changes and all(table and not table.durable for table in tables.values()):
        return _apply_at_once(session, tables, changes, started)
    autocommit = session.transaction is None
    if autocommit and [*tables.values()] == [None]:
        [(name, data)] = changes.items()
        changes = {name: as_arrow(name, data)}  # A stream is read once, whichever way its rows go.
        with database.turns.writing():
            inserted = insert_rows(session, name, changes[name])
        if inserted is not None:
            return inserted.epoch or _empty_epoch(session, started)
    with database.turns.writing(), unit(session) as transaction:
        # Everything is checked before anything is written: in BEGIN, a failure leaves the transaction as it was.
        ordinary, noted = [], []
        for number, (name, data) in enumerate(changes.items()):
            table = tables[name]
            if table is None:
                ordinary.append(net_changes(session, name, data, number))
                continue
            rows, weights = read_changes(name, table.columns, data, table.defaults)
            noted.append(
                (table, database.engine.relations[database.relation_key(table.name)].as_declared(rows), weights)
            )
        for netted in ordinary:
            write_netted(session, netted)
        for table, rows, weights in noted:
            transaction.add(table, rows, weights)
    if autocommit and transaction.epoch is None:  # No view reads any of the tables, or the changes cancel.
        transaction.epoch = _empty_epoch(session, started)
    return transaction.epoch


def _empty_epoch(session: Session, started: float) -> Epoch:
    engine = session.database.engine
    return engine.commit(engine.apply({}), started)


def _apply_at_once(
    session: Session, tables: Mapping[str, ChangeTable | None], changes: Mapping[str, Any], started: float
) -> Epoch:
    """An epoch of change tables alone, which needs no transaction of DuckDB's; opens the short way for the next."""
    engine = session.database.engine
    batch = {}
    for name, data in changes.items():
        table = tables[name]
        assert table is not None
        relation = session.database.relation_key(table.name)
        batch[relation] = Change(*read_changes(name, table.columns, data, table.defaults))
    with engine.lock:
        epoch = engine.commit(engine.apply(batch), started)
        _open_gates(session, dict(zip(changes, batch, strict=True)))
    return epoch


def apply_row(session: Session, name: str, row: Sequence[Any], weight: int) -> int | None:
    """Apply one row; see Connection.apply_row. Opens the short way for change tables."""
    database = session.database
    if not isinstance(weight, int) or isinstance(weight, bool):
        raise DataError(f"a weight of {weight!r}", hint="give a whole number")
    if isinstance(row, (str, bytes, Mapping, Set)) or not isinstance(row, Collection):
        raise DataError(f"{row!r} is no row of {name}", hint="give a tuple or a list, in the table's column order")
    if (table := directly(session, name)) is not None:
        relation = database.relation_key(table.name)
        with database.lock:
            number = database.engine.apply_row(relation, row, weight)
            _open_gates(session, {name: relation})
        return number
    import pyarrow as pa

    table = _change_table(session, name)
    columns = table.columns if table is not None else table_columns(session, name)[1]
    if len(row) != len(columns):
        raise DataError(f"{name} has {len(columns)} columns, the row has {len(row)} values")
    cast = database.engine.dictionaries.caster.cast_value
    data = {column.name: cast(value, column.type) for column, value in zip(columns, row, strict=True)}
    epoch = apply(session, {name: pa.table({**data, "_weight": pa.array([weight], pa.int64())})})
    return epoch.number if epoch is not None else None


def directly(session: Session, name: str) -> ChangeTable | None:
    """A change table whose epochs need no transaction of DuckDB's now; None for others."""
    table = _change_table(session, name)
    return table if table is not None and not table.durable and session.transaction is None else None


def _open_gates(session: Session, names: Mapping[str, str]) -> None:
    """The short way into relations by their names in SQL, until names change or a transaction begins. The engine is
    locked."""
    database = session.database
    if session.revision == database.revision:
        session.gates.update((name, database.engine.gates[relation]) for name, relation in names.items())


def _change_table(session: Session, name: str) -> ChangeTable | None:
    table = session.tables.get(name)
    if table is None:
        table = session.database.change_table(session.duck, name_parts(name))
    if table is not None:
        session.tables[name] = table
    if table is not None and table.lost is not None:
        raise lost(f"change table {table.name}", table)
    if table is not None and table.durable and session.database.read_only:
        raise ProgrammingError(
            f"change table {table.name} cannot be written",
            why=f"it is durable, and {session.database.path} is open read-only",
            hint="connect without access_mode = 'READ_ONLY'",
        )
    return table


def _refuse_doubled(session: Session, tables: Mapping[str, ChangeTable | None]) -> None:
    """One table, one entry: two would not be netted. Only the names of ordinary tables need a look at the catalog."""
    from sqlfront.database.catalog import EngineCatalog

    if len(tables) < 2:
        return
    catalog = EngineCatalog(session.database, session.duck) if None in tables.values() else None
    seen: dict[str | int | None, str] = {}
    for name, table in tables.items():
        found = catalog.resolve(name_parts(name)) if catalog is not None and table is None else id(table)
        if found is not None and found in seen:
            raise ProgrammingError(
                f"two entries of the changes name one table: {seen[found]} and {name}", hint="join them"
            )
        if found is not None:
            seen[found] = name

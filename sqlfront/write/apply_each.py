"""`con.apply_each`: a stream of rows, an epoch for every so many of them.

Rows go to the engine in blocks of whole epochs, which it applies in one call as far as it can
(`maintenance/each_epoch.py`). `con.apply` applies the others: epochs of ordinary and of durable tables, within BEGIN,
and those that fail or need a wider form. So each epoch is what `apply` of its rows is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.maintenance.each_epoch import apply_each as apply_block
from sqlfront.maintenance.engine import Change
from sqlfront.storage.codecs.arrow_batches import as_arrow_rows
from sqlfront.storage.errors import Error, InterfaceError
from sqlfront.write.apply import directly
from sqlfront.write.changes import as_arrow, read_changes

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.entries import ChangeTable
    from sqlfront.database.sessions import Session

_BLOCK = 16_384
"""About how many rows are encoded at once."""


@dataclass(frozen=True)
class Epochs:
    """The epochs of one `apply_each`: how many (`count`), the `number` of the database's last epoch then, the `rows` of
    the stream, and the `seconds` from the call to its end."""

    count: int
    number: int
    rows: int
    seconds: float


def apply_each(
    session: Session, apply: Callable[[dict[str, Any]], Any], reader: Any, name: str, each: int
) -> Epochs | None:
    """Apply a stream of changes of one table; see Connection.apply_each. `apply` is the connection's, for one epoch."""
    if each < 1:
        raise InterfaceError(f"an epoch of {each} rows", hint="give rows=1 or more")
    started, rows = time.perf_counter(), 0
    for block in _blocks(name, reader, each):
        at = missed = 0
        while at < block.num_rows:
            done = 0 if missed > 1 else _apply_shortly(session, name, block.slice(at), each)
            at, missed = at + done, 0 if done else missed + 1
            if at < block.num_rows:
                part = block.slice(at, each)
                with _blamed(session, 1 + (rows + at) // each, rows + at, part.num_rows):
                    apply({name: part})
                at += part.num_rows
        rows += at
    if session.transaction is not None:
        return None
    return Epochs(-(-rows // each), session.database.engine.epoch, rows, time.perf_counter() - started)


def _apply_shortly(session: Session, name: str, block: pa.Table | pa.RecordBatch, each: int) -> int:
    """Apply the first epochs of a block in one call; how many of its rows are in."""
    table = directly(session, name)
    if table is None:
        return 0
    engine, relation = session.database.engine, session.database.relation_key(table.name)
    return apply_block(engine, relation, block, each, partial(_change, name, table, block))


def _change(name: str, table: ChangeTable, block: pa.Table | pa.RecordBatch) -> Change:
    return Change(*read_changes(name, table.columns, block, table.defaults))


def _blocks(name: str, reader: Any, each: int) -> Iterator[pa.Table | pa.RecordBatch]:
    """The rows of a stream in blocks of whole epochs; the last block ends with what is left."""
    import pyarrow as pa

    size = max(each, _BLOCK // each * each)
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in _batches(name, reader):
        held.append(batch)
        rows += batch.num_rows
        if rows < size:
            continue
        data = batch if len(held) == 1 else pa.Table.from_batches(held)
        for at in range(0, rows - size + 1, size):
            yield data.slice(at, size)
        rest = data.slice(rows // size * size)
        held = [rest] if len(held) == 1 else rest.to_batches()
        rows = rest.num_rows
    if rows:
        yield pa.Table.from_batches(held)


def _batches(name: str, reader: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if as_arrow_rows(reader) is None and hasattr(reader, "__arrow_c_stream__"):
        return iter(pa.RecordBatchReader.from_stream(reader))
    data = as_arrow(name, reader)
    return iter([data] if isinstance(data, pa.RecordBatch) else data.to_batches())


@contextmanager
def _blamed(session: Session, number: int, before: int, rows: int) -> Iterator[None]:
    """Name an epoch of the stream in its error: the epochs before it stay."""
    try:
        yield
    except Error as error:
        which = f"row {before + 1}" if rows == 1 else f"rows {before + 1} to {before + rows}"
        where = "committed" if session.transaction is None else "in the transaction"
        before_it = f"the epochs before it are {where}" if number > 1 else None
        raise type(error)(
            f"epoch {number} of the stream ({which}) is not applied: {error.what}",
            where=error.where,
            why="; ".join(filter(None, [error.why, before_it])),
            hint=error.hint,
        ) from error

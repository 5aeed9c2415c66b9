"""The write buffers of spilled tables as Python sees them (kernels/tables/write_buffer.py)."""

from __future__ import annotations

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import write_buffer
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.words import words_at

_PARTS = (at.INDEXES, at.OWNER, at.ORDER, at.RANKS, at.SUMS, at.SUMMARIES)


def may_buffer(table: Table) -> bool:
    """Whether a table is one of rows alone, by their keys: no index, no order and no sums depend on them."""
    return table.keys > 0 and not any(table.header[place] for place in _PARTS)


def buffer_changes(table: Table, on: bool) -> None:
    """Let changes of a table's rows wait from now on, or no more; then what waits is merged."""
    if on and not table.header[at.BUFFERED]:
        table.header[at.BUFFER_BOUND] = write_buffer.UNKNOWN if table.used else 0
        table.header[at.BUFFERED] = 1
    elif not on:
        merge_buffer(table)
        write_buffer.stop_buffering(table.address)


def merge_buffer(table: Table) -> None:
    """Let a table take in what waits for its rows. O(rows that wait)."""
    write_buffer.settle_buffer(table.address)


def waiting_rows(table: Table) -> int:
    """How many rows' changes wait."""
    buffer = int(table.header[at.WRITE_BUFFER])
    return int(words_at(buffer, at.HEADER_WORDS)[at.LIVE]) if buffer else 0

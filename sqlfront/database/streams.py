"""A lazy result as a stream of record batches, which its connection ends when it goes on to something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from sqlfront.storage.errors import InterfaceError

if TYPE_CHECKING:
    import pyarrow as pa


class Stream:
    """The batches of a reader of DuckDB's, each fetched within `reading()`."""

    def __init__(self, reader: pa.RecordBatchReader, reading: Callable[[], AbstractContextManager[None]]) -> None:
        self._reader: pa.RecordBatchReader | None = reader
        self._reading = reading

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches. StaleRead when another epoch is committed, InterfaceError after `close`."""
        while True:
            if self._reader is None:
                raise InterfaceError(
                    "the stream has ended early",
                    why="its connection has run another statement, or was closed",
                    hint="read it from a cursor of its own: con.cursor()",
                )
            with self._reading():
                try:
                    batch = self._reader.read_next_batch()
                except StopIteration:
                    return
            yield batch

    def close(self) -> None:
        """Let go of DuckDB's result."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

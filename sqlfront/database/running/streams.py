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
        self._reading, self.schema = reading, reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, all of one epoch. StaleRead where the rest was too large to be held, InterfaceError after
        `close`."""
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

    def hold(self, room: float) -> bool:
        """Read the remaining batches into memory; False if they need more bytes than `room`: the stream has then lost
        rows, and nothing more is read from it. Under the lock, within the reading."""
        import pyarrow as pa

        if self._reader is None:
            return True
        held = list[pa.RecordBatch]()
        for batch in self._reader:
            held.append(batch)
            room -= batch.nbytes
            if room < 0:
                return False
        self._reader = pa.RecordBatchReader.from_batches(self.schema, held)
        return True

    def close(self) -> None:
        """Let go of DuckDB's result."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

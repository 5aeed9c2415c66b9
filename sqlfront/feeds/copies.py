"""Copies of views in tables outside, kept current: the changes of some epochs are merged in by one commit with the last
one's number. A copy that has missed epochs is brought up to date by its difference from the view."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sqlfront.feeds.feed import subscribe
from sqlfront.storage.errors import ProgrammingError
from sqlfront.storage.outside.sinks import DeltaSink, DuckDBSink, ParquetSink, Sink

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry

_PAUSE = 0.2
FORMATS = ("duckdb", "parquet", "delta")


class Copy:
    """A table outside that follows a view, in a thread of its own, until `close`. What a write costs depends on the
    format: see storage/outside/sinks.py.

    OperationalError if there is no writing there, ProgrammingError if the table has other columns than the view.
    """

    def __init__(self, database: Database, entry: ViewEntry, path: str, table: str | None, format: str) -> None:
        self.error: Exception | None = None
        self._sink = _sink(entry, path, table, format)
        try:
            self._subscription = subscribe(database, entry, lossless=True)
            self._sink.become(self._subscription.poll(), self._subscription.version)
        except BaseException:
            self._sink.close()
            raise
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="sqlfront copy", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The last epoch that is written; -1 before the first."""
        return self._sink.version

    def close(self) -> None:
        """Write what has been committed so far, and follow the view no more. Raises what has ended the copying."""
        self._ending.set()
        self._thread.join()
        self._sink.close()
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _follow(self) -> None:
        try:
            with self._subscription:
                last = False
                while not last:
                    last = self._ending.is_set()
                    changes = self._subscription.poll(0 if last else _PAUSE)
                    if changes is not None:
                        self._sink.follow(changes, self._subscription.version)
        except Exception as error:
            self.error = error


def _sink(entry: ViewEntry, path: str, table: str | None, format: str) -> Sink:
    columns = entry.definition.columns
    if format not in FORMATS:
        raise ProgrammingError(f"there is no format {format!r} of copies", hint="one of " + ", ".join(FORMATS))
    if format == "duckdb":
        return DuckDBSink(path, table or entry.name.name, columns)
    if table is not None:
        raise ProgrammingError(f"a {format} copy has no table {table!r}", why="its path names it", hint="leave it out")
    return (ParquetSink if format == "parquet" else DeltaSink)(path, columns)

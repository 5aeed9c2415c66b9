"""A lazy relation: a query that runs again at each read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

    from sqlfront.connection import Connection


class Relation:
    """A query over tables and views; each read runs it anew and sees one epoch.

    It can be scanned by DuckDB, pyarrow, pandas and polars through `__arrow_c_stream__`.
    """

    def __init__(self, connection: Connection, query: str) -> None:
        self._connection, self._query = connection, query

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [row[0] for row in self._connection.execute(f"DESCRIBE {self._query}").fetchall()]

    @property
    def types(self) -> list[str]:
        """The DuckDB types of the columns."""
        return [row[1] for row in self._connection.execute(f"DESCRIBE {self._query}").fetchall()]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""
        with self._cursor() as cursor:
            return cursor.execute(self._query).fetchall()

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row, or None."""
        with self._cursor() as cursor:
            return cursor.execute(self._query).fetchone()

    def df(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame."""
        with self._cursor() as cursor:
            return cursor.execute(self._query).df()

    def to_arrow_table(self) -> pa.Table:
        """All rows as an Arrow table."""
        with self._cursor() as cursor:
            return cursor.execute(self._query).to_arrow_table()

    def to_arrow_reader(self, batch_size: int = 131072) -> pa.RecordBatchReader:
        """The rows as a lazy stream, on a cursor of its own, pinned to its epoch (StaleRead)."""
        owner = self._connection if self._connection.session.transaction is not None else self._connection.cursor()
        return owner.execute(self._query).to_arrow_reader(batch_size)

    def show(self, rows: int = 20) -> None:
        """Print the first rows as a table."""
        from sqlfront.shell.draw_table import draw_table

        with self._cursor() as cursor:
            cursor.execute(self._query)
            head = cursor.description or []
            names, types = [column[0] for column in head], [str(column[1]) for column in head]
            print("\n".join(draw_table(names, types, cursor.fetchmany(rows))))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow_reader().__arrow_c_stream__(requested_schema)

    @contextmanager
    def _cursor(self) -> Iterator[Connection]:
        """The connection itself in a transaction (its own changes count), else a cursor that leaves it alone."""
        if self._connection.session.transaction is not None:
            yield self._connection
            return
        cursor = self._connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()

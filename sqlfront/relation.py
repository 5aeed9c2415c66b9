"""A lazy relation: a query that runs again at each read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlfront.database.failures import polars_frame

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

    from sqlfront.connection import Connection


# Statements that only look: a relation may run them at each read.
_LOOKS = {"select", "describe", "show_tables", "explain"}


def related(connection: Connection, sql: str) -> Relation | None:
    """The relation that `Connection.sql` gives: lazy over a query, else the rows of a statement that ran."""
    from sqlfront.database.held_result import HeldResult, HeldRows
    from sqlfront.dispatch import READS
    from sqlfront.sql.statements import PassThrough, parse_statement

    statements = parse_statement(sql)
    for statement in statements[:-1]:
        connection.execute(statement.text)
    if not statements:
        return None
    last = statements[-1]
    looks = last.kind in _LOOKS if isinstance(last, PassThrough) else isinstance(last, READS)
    if looks:
        return Relation(connection, last.text)
    connection.execute(last.text)
    columns = [column[0] for column in connection.description or ()]
    asks = isinstance(last, PassThrough) and (last.returning or last.kind == "execute")
    if not columns or (columns in (["Count"], ["Success"]) and not asks):
        connection.session.ready()
        return None
    served = connection.session.served  # Rows of ours keep every type; DuckDB's own are fetched.
    rows = served.held() if isinstance(served, HeldResult | HeldRows) else connection.to_arrow_table()
    return Relation(connection, last.text, rows)


class Relation:
    """A query over tables and views; each read runs it anew and sees one epoch.

    With `rows` the statement has been run and they are its result: each read gives them, and nothing runs again.
    It can be scanned by DuckDB, pyarrow, pandas and polars through `__arrow_c_stream__`.
    """

    def __init__(self, connection: Connection, query: str, rows: pa.Table | None = None) -> None:
        self._connection, self._query, self._rows = connection, query, rows

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [row[0] for row in self._description()]

    @property
    def types(self) -> list[str]:
        """The DuckDB types of the columns."""
        return [row[1] for row in self._description()]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""
        with self._cursor() as cursor:
            return self._run(cursor).fetchall()

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row, or None."""
        with self._cursor() as cursor:
            return self._run(cursor).fetchone()

    def df(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame."""
        with self._cursor() as cursor:
            return self._run(cursor).df()

    def pl(self) -> Any:
        """All rows as a polars DataFrame."""
        return polars_frame(self.to_arrow_table())

    def fetchnumpy(self) -> dict[str, Any]:
        """All rows as numpy arrays by column."""
        with self._cursor() as cursor:
            return self._run(cursor).fetchnumpy()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def to_arrow_table(self) -> pa.Table:
        """All rows as an Arrow table."""
        with self._cursor() as cursor:
            return self._run(cursor).to_arrow_table()

    def to_arrow_reader(self, batch_size: int = 131072) -> pa.RecordBatchReader:
        """The rows as a lazy stream of one epoch, on a cursor of its own; see Connection.to_arrow_reader."""
        owner = self._connection if self._connection.session.transaction is not None else self._connection.cursor()
        return self._run(owner).to_arrow_reader(batch_size)

    def show(self, rows: int = 20) -> None:
        """Print the first rows as a table."""
        from sqlfront.shell.draw_table import draw_table

        with self._cursor() as cursor:
            self._run(cursor)
            head = cursor.description or []
            names, types = [column[0] for column in head], [str(column[1]) for column in head]
            print("\n".join(draw_table(names, types, cursor.fetchmany(rows))))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow_reader().__arrow_c_stream__(requested_schema)

    def _description(self) -> list[tuple[Any, ...]]:
        """Name and type of each column, as DESCRIBE gives them."""
        if self._rows is None:
            return self._connection.execute(f"DESCRIBE {self._query}").fetchall()
        with self._cursor() as cursor:
            return [(name, str(type_)) for name, type_, *_ in self._run(cursor).description or ()]

    def _run(self, cursor: Connection) -> Connection:
        """Run the query on a cursor, or give it the rows that are held."""
        if self._rows is None:
            return cursor.execute(self._query)
        cursor.session.ready()
        cursor.session.set_result(self._rows)
        return cursor

    @contextmanager
    def _cursor(self) -> Iterator[Connection]:
        """The connection itself in a transaction (its own changes count), else a cursor that leaves it alone."""
        if self._connection.session.transaction is not None:
            yield self._connection
            return
        spare, running = self._connection.spare, self._connection.running
        try:
            cursor = spare.pop()
        except IndexError:  # None is left, or another thread has taken it.
            cursor = self._connection.cursor()
        try:
            running.append(cursor)
            try:
                yield cursor
            finally:
                running.remove(cursor)
            cursor.session.ready(writes=False)
        except BaseException:
            cursor.close()
            raise
        if spare or self._connection.session.closed:
            cursor.close()
        else:
            spare.append(cursor)

"""Copies of views in other DuckDB files, kept current: the changes of some epochs are merged into a table in one
transaction with the last one's number. What is written is not written again, and a copy that has missed epochs is
brought up to date by its difference from the view."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sqlfront.feed import subscribe
from sqlfront.names import shown
from storage.capture_sql import quote
from storage.errors import OperationalError, ProgrammingError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database import Database, ViewEntry

_BOOK = "__sqlfront_copies"
_PAUSE = 0.2


class Copy:
    """A table in another DuckDB file that follows a view, in a thread of its own, until `close`.

    Merging costs O(change), and one scan of the table when rows go. OperationalError if the file cannot be opened,
    ProgrammingError if the table has other columns than the view.
    """

    def __init__(self, database: Database, entry: ViewEntry, path: str, table: str) -> None:
        import duckdb

        self._table, self._columns = table, entry.definition.columns
        self.error: Exception | None = None
        try:
            self._con = duckdb.connect(path)
        except duckdb.Error as error:
            raise OperationalError(
                f"a copy of {shown(entry.name)} cannot be kept", where=path, why=str(error), hint="use another file"
            ) from error
        try:
            self._prepare()
            self._subscription = subscribe(database, entry, lossless=True)
            self._whole(self._subscription.poll(), self._subscription.version)
        except BaseException:
            self._con.close()
            raise
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="sqlfront copy", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The last epoch that is written; -1 before the first."""
        query = f"SELECT max(version) FROM {_BOOK} WHERE name = ?"
        with self._con.cursor() as con:
            [(found,)] = con.execute(query, [self._table]).fetchall()
        return -1 if found is None else int(found)

    def close(self) -> None:
        """Write what has been committed so far, and follow the view no more. Raises what has ended the copying."""
        self._ending.set()
        self._thread.join()
        self._con.close()
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Inside --------------------------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            with self._subscription:
                last = False
                while not last:
                    last = self._ending.is_set()
                    changes = self._subscription.poll(0 if last else _PAUSE)
                    if changes is not None:
                        self._merge(changes)
        except Exception as error:
            self.error = error

    def _prepare(self) -> None:
        self._con.execute(f"CREATE TABLE IF NOT EXISTS {_BOOK} (name VARCHAR PRIMARY KEY, version BIGINT)")
        columns = ", ".join(f"{quote(name)} {type_}" for name, type_ in self._columns)
        self._con.execute(f"CREATE TABLE IF NOT EXISTS {quote(self._table)} ({columns})")
        found = [(row[0], row[1]) for row in self._con.execute(f"DESCRIBE {quote(self._table)}").fetchall()]
        if found != list(self._columns):
            raise ProgrammingError(
                f"table {self._table} has other columns than the view",
                where=", ".join(" ".join(column) for column in found),
                hint="drop it, or copy to another table",
            )

    def _whole(self, rows: pa.Table | None, version: int) -> None:
        """Write the difference between the table and the view's rows. O(rows); nothing if their epoch is written."""
        if self.version == version:
            return
        held = f"SELECT * FROM {quote(self._table)}"
        new = self._select(rows, "true") if rows is not None else f"{held} WHERE false"
        self._write(held, new, version)

    def _merge(self, changes: pa.Table) -> None:
        """Write the changes of some epochs."""
        kind = f"c{len(self._columns)}"
        gone = self._select(changes, f"{kind} IN ('delete', 'update_preimage')")
        new = self._select(changes, f"{kind} IN ('insert', 'update_postimage')")
        self._write(gone, new, self._subscription.version)

    def _select(self, rows: pa.Table, where: str) -> str:
        self._con.register("now", rows.rename_columns([f"c{i}" for i in range(rows.num_columns)]))
        names = enumerate(self._columns)
        columns = ", ".join(f"CAST(c{i} AS {type_}) AS {quote(name)}" for i, (name, type_) in names)
        return f"SELECT {columns} FROM now WHERE {where}"

    def _write(self, gone: str, new: str, version: int) -> None:
        """Delete and insert rows, netted, copy by copy, and note the version: all of it or nothing."""
        table, names = quote(self._table), [quote(name) for name, _ in self._columns]
        same = " AND ".join(f"t.{name} IS NOT DISTINCT FROM g.{name}" for name in names)
        each = ", ".join(f"t.{name}" for name in names)
        copies = f"SELECT t.rowid AS r, g.__n AS n, row_number() OVER (PARTITION BY {each}) AS k FROM {table} AS t"
        con = self._con
        con.execute("BEGIN")
        try:
            con.execute(f"CREATE OR REPLACE TEMP TABLE coming AS ({new}) EXCEPT ALL ({gone})")
            going = f"SELECT *, count(*) AS __n FROM (({gone}) EXCEPT ALL ({new})) GROUP BY ALL"
            con.execute(f"CREATE OR REPLACE TEMP TABLE going AS {going}")
            found = f"SELECT r FROM ({copies} JOIN going AS g ON {same}) WHERE k <= n"
            con.execute(f"DELETE FROM {table} WHERE rowid IN ({found})")
            con.execute(f"INSERT INTO {table} SELECT * FROM coming")
            con.execute(f"INSERT OR REPLACE INTO {_BOOK} VALUES (?, ?)", [self._table, version])
            con.execute("COMMIT")
        except BaseException:
            con.execute("ROLLBACK")
            raise

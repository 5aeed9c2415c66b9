"""Sinks: tables outside the database that hold a view's rows, written by the view's changes.

Each write and the number of the epoch that it leads to are one commit of the table's own, so a table is always the view
of that epoch, whatever was killed when. Rows are written as a multiset: n copies are n rows.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.storage.errors import NotSupportedError, OperationalError, ProgrammingError
from sqlfront.storage.outside.spark_types import spark_type
from sqlfront.storage.sql_text import exact, quote

if TYPE_CHECKING:
    import pyarrow as pa

_NOW, _HELD, _SUMS = "__sqlfront_now", "__sqlfront_held", "__sqlfront_sums"
_COMING, _GOING = "__sqlfront_coming", "__sqlfront_going"
Columns = Sequence[tuple[str, str]]  # Names and DuckDB's types.


class Sink(ABC):
    """A table that becomes, and then follows, a view of the given columns. `types` are those that the table has.

    `con` computes what is written; a subclass says what the table holds, and how the rows of the tables _GOING and
    _COMING, which have none in common, are taken out and put in.
    """

    def __init__(self, con: Any, where: str, columns: Columns, types: Sequence[str]) -> None:
        self._con, self._where, self._columns = con, where, list(columns)
        self._types = [(name, type_) for (name, _), type_ in zip(columns, types, strict=True)]
        self._names = ", ".join(quote(name) for name, _ in columns)
        self._spelled = [(name, type_) for name, type_ in self._types if "INTERVAL" in type_]

    @property
    @abstractmethod
    def version(self) -> int:
        """The last epoch that is written; -1 before the first."""

    @abstractmethod
    def _held(self) -> str:
        """The table's rows, as a query."""

    @abstractmethod
    def _commit(self, version: int) -> None:
        """Write, and note the version: all of it or nothing. OperationalError if a row that goes is not there."""

    def close(self) -> None:
        """Let go of the table."""
        self._con.close()

    def become(self, rows: pa.Table | None, version: int) -> None:
        """Write the difference between the table and these rows (images as of a subscription). O(rows)."""
        held = self._held()
        self._write(
            held, f"SELECT * FROM ({held}) WHERE false" if rows is None else self._images(rows, "true"), version
        )

    def follow(self, changes: pa.Table, version: int) -> None:
        """Write the changes of some epochs (images as of a subscription)."""
        kind = f"c{len(self._columns)}"
        gone = self._images(changes, f"{kind} IN ('delete', 'update_preimage')")
        self._write(gone, self._images(changes, f"{kind} IN ('insert', 'update_postimage')"), version)

    def _images(self, rows: pa.Table, where: str) -> str:
        self._con.register(_NOW, rows.rename_columns([f"c{i}" for i in range(rows.num_columns)]))
        own = enumerate(zip(self._columns, self._types, strict=True))
        values = [f"CAST(CAST(c{i} AS {of}) AS {type_}) AS {quote(name)}" for i, ((name, of), (_, type_)) in own]
        return f"SELECT {', '.join(values)} FROM {_NOW} WHERE {where}"

    def _write(self, gone: str, new: str, version: int) -> None:
        con = self._con
        con.execute("BEGIN")
        try:
            for name, one, other in ((_COMING, new, gone), (_GOING, gone, new)):
                difference = f"({self._told_apart(one)}) EXCEPT ALL ({self._told_apart(other)})"
                con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {self._names} FROM ({difference})")
            if self.version != version or self._count(f"FROM {_COMING} UNION ALL FROM {_GOING}"):
                self._commit(version)
            con.execute("COMMIT")
        except BaseException:
            con.execute("ROLLBACK")
            raise

    def _count(self, query: str) -> int:
        [(found,)] = self._con.execute(f"SELECT count(*) FROM ({query})").fetchall()
        return int(found)

    def _check(self, relation: str) -> None:
        """ProgrammingError unless the table that is there has the columns that it should."""
        found = [(row[0], row[1]) for row in self._con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()]
        if found != self._types:
            raise ProgrammingError(
                f"{self._where} has other columns than the view",
                where=", ".join(" ".join(column) for column in found),
                hint="remove it, or copy to another place",
            )

    def _expect(self, found: bool) -> None:
        if not found:
            raise OperationalError(
                f"{self._where} does not hold what the view held",
                why="someone else has written to it",
                hint="copy the view there again: that starts with what is different",
            )

    def _same(self, one: str, other: str) -> str:
        """The condition that rows of two relations are equal, NULLs too."""
        pairs = zip(self._values(one), self._values(other), strict=True)
        return " AND ".join(f"({own} IS NOT DISTINCT FROM {all_})" for own, all_ in pairs)

    def _values(self, relation: str) -> list[str]:
        """The values that tell rows apart: intervals as they are written, since 30 days equal 1 month."""
        columns = [f"{relation}.{quote(name)}" for name, _ in self._types]
        return [*columns, *(exact(f"{relation}.{quote(name)}", type_) for name, type_ in self._spelled)]

    def _told_apart(self, rows: str) -> str:
        return f"SELECT {', '.join(self._values('r'))} FROM ({rows}) AS r" if self._spelled else rows


class DuckDBSink(Sink):
    """A table of a DuckDB file. A write costs O(change), and one scan of the table when rows go."""

    _BOOK = "__sqlfront_copies"

    def __init__(self, path: str, table: str, columns: Columns) -> None:
        import duckdb

        try:
            con = duckdb.connect(path)
        except duckdb.Error as error:
            raise OperationalError(
                "a copy cannot be kept there", where=path, why=str(error), hint="use another file"
            ) from error
        super().__init__(con, f"table {table}", columns, [type_ for _, type_ in columns])
        self._table = table
        try:
            con.execute(f"CREATE TABLE IF NOT EXISTS {self._BOOK} (name VARCHAR PRIMARY KEY, version BIGINT)")
            declared = ", ".join(f"{quote(name)} {type_}" for name, type_ in columns)
            con.execute(f"CREATE TABLE IF NOT EXISTS {quote(table)} ({declared})")
            self._check(quote(table))
        except BaseException:
            con.close()
            raise

    @property
    def version(self) -> int:
        with self._con.cursor() as con:
            query = f"SELECT max(version) FROM {self._BOOK} WHERE name = ?"
            [(found,)] = con.execute(query, [self._table]).fetchall()
        return -1 if found is None else int(found)

    def _held(self) -> str:
        return f"SELECT * FROM {quote(self._table)}"

    def _commit(self, version: int) -> None:
        con, table = self._con, quote(self._table)
        each, going = ", ".join(self._values("t")), ", ".join(self._values(_GOING))
        numbered = f"SELECT t.rowid AS r, g.__n AS n, row_number() OVER (PARTITION BY {each}) AS k FROM {table} AS t"
        counted = f"(SELECT {self._names}, count(*) AS __n FROM {_GOING} GROUP BY {going})"
        found = f"SELECT r FROM ({numbered} JOIN {counted} AS g ON {self._same('t', 'g')}) WHERE k <= n"
        [(deleted,)] = con.execute(f"DELETE FROM {table} WHERE rowid IN ({found})").fetchall()
        self._expect(deleted == self._count(f"FROM {_GOING}"))
        con.execute(f"INSERT INTO {table} SELECT * FROM {_COMING}")
        con.execute(f"INSERT OR REPLACE INTO {self._BOOK} VALUES (?, ?)", [self._table, version])


class ParquetSink(Sink):
    """A directory with a snapshot in Parquet, of which `current` is always a whole one: a link, replaced in one step.

    A write costs O(view): it is the snapshot of a later epoch. The one before it stays for those who read it.
    """

    def __init__(self, path: str, columns: Columns) -> None:
        super().__init__(memory(), f"directory {path}", columns, stored_types(columns))
        self._path, self._link = path, os.path.join(path, "current")
        os.makedirs(path, exist_ok=True)
        if self._snapshot:
            self._check(f"read_parquet({self._file(self._snapshot)})")

    @property
    def version(self) -> int:
        return int(self._snapshot.rpartition("-")[2]) if self._snapshot else -1

    @property
    def _snapshot(self) -> str:
        """The directory that is current: its number and its epoch; empty before the first."""
        return os.readlink(self._link) if os.path.islink(self._link) else ""

    def _file(self, snapshot: str) -> str:
        """A snapshot's file, as an SQL literal."""
        return "'" + os.path.join(self._path, snapshot, "part-0.parquet").replace("'", "''") + "'"

    def _held(self) -> str:
        if self._snapshot:
            return f"SELECT * FROM read_parquet({self._file(self._snapshot)})"
        values = ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_ in self._types)
        return f"SELECT * FROM (SELECT {values}) LIMIT 0"

    def _commit(self, version: int) -> None:
        former = self._snapshot
        number = int(former.partition("-")[0] or 0) + 1
        snapshot = f"{number:08}-epoch-{version}"
        self._remove_but(former)
        os.mkdir(os.path.join(self._path, snapshot))
        query = f"(({self._held()}) EXCEPT ALL (FROM {_GOING})) UNION ALL (FROM {_COMING})"
        [(written,)] = self._con.execute(f"COPY ({query}) TO {self._file(snapshot)} (FORMAT parquet)").fetchall()
        changed = self._count(f"FROM {_COMING}") - self._count(f"FROM {_GOING}")
        self._expect(written == self._count(self._held()) + changed)
        _sync(os.path.join(self._path, snapshot, "part-0.parquet"))
        _sync(os.path.join(self._path, snapshot))
        os.symlink(snapshot, f"{self._link}.new")
        os.replace(f"{self._link}.new", self._link)
        _sync(self._path)

    def _remove_but(self, kept: str) -> None:
        """Remove what a write has left that was not finished, and snapshots but one."""
        for name in os.listdir(self._path):
            if name == "current.new":
                os.unlink(f"{self._link}.new")
            elif "-epoch-" in name and name != kept:
                shutil.rmtree(os.path.join(self._path, name))


class DeltaSink(Sink):
    """A Delta table, changed by MERGE; the epoch is that of the application `sqlfront` in the commit.

    A write costs one scan of the table for the copies of changed rows, and the MERGE, which rewrites their files.
    """

    def __init__(self, path: str, columns: Columns) -> None:
        try:
            import deltalake
        except ImportError as error:
            raise NotSupportedError(
                "Delta tables cannot be written",
                why="the package deltalake is not installed",
                hint='pip install "sqlfront[delta]"',
            ) from error
        super().__init__(memory(), f"Delta table {path}", columns, stored_types(columns))
        values = ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_ in self._types)
        schema = self._con.sql(f"SELECT {values} LIMIT 0").to_arrow_table().schema
        self._delta = deltalake.DeltaTable.create(path, schema=schema, mode="ignore")
        self._held()
        self._check(_HELD)

    @property
    def version(self) -> int:
        found = self._delta.transaction_version("sqlfront")
        return -1 if found is None else int(found)

    def _held(self) -> str:
        self._con.register(_HELD, self._delta.to_pyarrow_dataset())
        return f"SELECT {self._names} FROM {_HELD}"

    def _commit(self, version: int) -> None:
        """Of each changed row all copies go and those that it has then come: MERGE can neither count nor number."""
        import deltalake

        held, names = self._held(), self._names
        changes = f"SELECT {names}, 1 AS __n FROM {_COMING} UNION ALL SELECT {names}, -1 FROM {_GOING}"
        old = f"SELECT {names}, 1 AS __n FROM ({held}) AS h SEMI JOIN ({changes}) AS c ON {self._same('h', 'c')}"
        sums = f"SELECT {names}, sum(__n)::BIGINT AS __n FROM ({old} UNION ALL {changes}) GROUP BY ALL"
        self._con.execute(f"CREATE OR REPLACE TEMP TABLE {_SUMS} AS {sums}")
        self._expect(self._count(f"FROM {_SUMS} WHERE __n < 0") == 0)
        copies = f"SELECT {names}, unnest(range(__n)) FROM {_SUMS}"
        source = f"SELECT {names}, true AS __gone FROM {_SUMS} UNION ALL SELECT {names}, false FROM ({copies})"
        commit = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("sqlfront", version)])
        merge = self._delta.merge(
            self._con.sql(source).to_arrow_table(),
            predicate=f"{self._same('t', 's')} AND s.__gone",
            source_alias="s",
            target_alias="t",
            commit_properties=commit,
        )
        own = {quote(name): f"s.{quote(name)}" for name, _ in self._columns}
        merge.when_matched_delete().when_not_matched_insert(own, predicate="NOT s.__gone").execute()


def memory() -> Any:
    """A connection that only computes; times with a zone are in UTC, as tables store them."""
    import duckdb

    con = duckdb.connect(":memory:")
    con.execute("SET TimeZone = 'UTC'")
    return con


def stored_types(columns: Columns) -> list[str]:
    """The types that a table outside has for the columns: those that Spark has too."""
    return [spark_type(type_)[1] or type_ for _, type_ in columns]


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

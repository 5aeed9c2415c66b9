"""Change sources: where a change table's changes come from, read after an offset and committed with it.

A source has a `name` that stays the same over restarts, and `read`. Its offset is a JSON value that the reader writes
down in the transaction of the epoch that took the changes in: what was read but not committed is read again, what was
committed never. Every object that keeps this protocol can be registered.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from sqlfront.storage.codecs.transport import exported
from sqlfront.storage.errors import OperationalError, ProgrammingError
from sqlfront.storage.outside.change_shapes import VERSION, Dialect, Wanted, shape_of, signed_rows
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class ChangeSource(Protocol):
    """Where changes come from."""

    name: str

    def read(self, after: Any | None, wanted: Wanted) -> Iterable[tuple[pa.Table, Any]]:
        """The changes after an offset (None: all), as (rows, the offset behind them), oldest first.

        Rows have the wanted columns by name, those nobody reads perhaps not, and perhaps `_weight` or `_change_type`.
        Each pair may become an epoch of its own. Rows that no wanted condition holds for may be left out.
        """
        ...


DUCKDB = Dialect(quote, "error", lambda value, type_: f"CAST({value} AS {type_})")


class DuckDBSource:
    """A DuckDB table of changes; rows are taken in order of `version`, a column that grows with each commit.

    `open` gives a connection for one read: nobody is kept from the file in between.
    """

    def __init__(
        self, name: str, open: Callable[[], Any], table: str, shape: str = "auto", version: str = VERSION
    ) -> None:
        self.name, self._open, self._table, self._shape, self._version = name, open, table, shape, version

    def read(self, after: Any | None, wanted: Wanted) -> Iterator[tuple[pa.Table, Any]]:
        with self._open() as con:
            columns = relation_columns(con, self._table)
            version = _version_column(columns, self._version)
            last, span = version_span(lambda sql: con.execute(sql).fetchall(), self._table, quote(version), after)
            if span is None:
                return
            sql = signed_rows(self._table, shape_of(self._shape, columns, wanted), wanted, DUCKDB, span)
            rows = fetched(con, sql)
        yield rows, last


class FileSource:
    """Parquet, CSV or JSON files of changes by a glob; each file is taken once, by its name, and never changes then."""

    def __init__(self, name: str, kind: str, path: str, shape: str = "auto") -> None:
        self.name, self._kind, self._path, self._shape = name, kind, path, shape

    def read(self, after: Any | None, wanted: Wanted) -> Iterator[tuple[pa.Table, Any]]:
        taken = set(after or ())
        found = sorted(os.path.abspath(name) for name in glob.glob(self._path, recursive=True))
        if not found and not taken:
            raise OperationalError(f"no file matches {self._path}", hint="check OPTIONS (path = '...')")
        new = [name for name in found if name not in taken]
        if new:
            files = ", ".join("'" + name.replace("'", "''") + "'" for name in new)
            relation = f"read_{self._kind}([{files}], union_by_name = true)"
            with connect_memory() as con:
                shape = shape_of(self._shape, relation_columns(con, relation), wanted)
                rows = fetched(con, signed_rows(relation, shape, wanted, DUCKDB))
            yield rows, sorted(taken.union(new))


class ArrowSource:
    """A stream or an iterable of Arrow tables; each of their batches is an epoch, the offset is their number.

    After a restart the same stream is registered again, from its beginning: the batches taken in before are skipped.
    """

    def __init__(self, name: str, stream: Any, shape: str = "auto") -> None:
        import pyarrow as pa

        self.name, self._shape = name, shape
        if hasattr(stream, "__arrow_c_stream__"):
            stream = pa.RecordBatchReader.from_stream(stream)
        self._batches: Iterator[Any] = iter(stream)
        self._number = 0

    def read(self, after: Any | None, wanted: Wanted) -> Iterator[tuple[pa.Table, Any]]:
        import pyarrow as pa

        for batch in self._batches:
            self._number += 1
            if self._number > (after or 0):
                table = batch if isinstance(batch, pa.Table) else pa.table(batch)
                shape = shape_of(self._shape, table.column_names, wanted)
                with connect_memory() as con:
                    con.register("batch", table)
                    rows = fetched(con, signed_rows("batch", shape, wanted, DUCKDB))
                yield rows, self._number


FILE_KINDS = {"parquet", "csv", "json"}
_OPTIONS: dict[str, tuple[set[str], set[str]]] = {  # kind: (required, optional)
    "duckdb": ({"table"}, {"file", "shape", "version"}),
    "triggers": ({"table", "file"}, set()),
    **{kind: ({"path"}, {"shape"}) for kind in FILE_KINDS},
    "spark": ({"table"}, {"shape", "version"}),
}


def check_source(kind: str, options: Mapping[str, Any]) -> None:
    """ProgrammingError unless there is such a kind of source and the options are what it takes."""
    if kind not in _OPTIONS:
        raise ProgrammingError(f"there is no source {kind!r} of changes", hint="one of " + ", ".join(sorted(_OPTIONS)))
    required, optional = _OPTIONS[kind]
    for wrong in options.keys() - required - optional:
        raise ProgrammingError(
            f"a source {kind!r} has no option {wrong!r}", hint=f"its options: {', '.join(sorted(required | optional))}"
        )
    for missing in required - options.keys():
        raise ProgrammingError(f"a source {kind!r} needs the option {missing!r}", hint=f"OPTIONS ({missing} = '...')")
    for name, value in options.items():
        if not isinstance(value, str):
            raise ProgrammingError(f"option {name!r} of a source is a string, not {value!r}", hint="write it in quotes")


def make_source(name: str, kind: str, options: Mapping[str, str], own: Callable[[], Any]) -> ChangeSource:
    """A source that DuckDB reads; `own` gives a cursor of the database that has the change table."""
    shape = options.get("shape", "auto")
    if kind in FILE_KINDS:
        return FileSource(name, kind, options["path"], shape)
    *schema, table_name = options["table"].split(".")
    if kind == "triggers":
        from sqlfront.storage.outside.trigger_source import TriggerSource

        return TriggerSource(name, partial(opened, options["file"]), schema[0] if schema else "main", table_name)
    table = ".".join(map(quote, [*schema, table_name]))
    if "file" in options:
        own = partial(opened, options["file"], read_only=True)
    return DuckDBSource(name, own, table, shape, options.get("version", VERSION))


def opened(file: str, *, read_only: bool = False) -> Any:
    """A connection to another database file. OperationalError if it cannot be had."""
    import duckdb

    try:
        return duckdb.connect(file, read_only=read_only)
    except duckdb.Error as error:
        raise OperationalError(
            f"the source {file} cannot be opened", why=str(error), hint="another process may have it open: try again"
        ) from error


def connect_memory() -> Any:
    """A connection that only computes."""
    import duckdb

    return duckdb.connect(":memory:")


def relation_columns(con: Any, relation: str) -> list[str]:
    """The names of a relation's columns."""
    return [str(row[0]) for row in con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()]


def fetched(con: Any, sql: str) -> pa.Table:
    """The rows of a query in Arrow types from which DuckDB restores its own."""
    con.execute("SET arrow_lossless_conversion = true")
    return exported(con.sql(sql)).to_arrow_table()


def version_span(run: Any, relation: str, version: str, after: Any | None) -> tuple[Any, str | None]:
    """The last version in a relation and the condition for rows after an offset up to it; None if there are none."""
    newer = f"{version} > {version_literal(after)}" if after is not None else f"{version} IS NOT NULL"
    [(last,)] = run(f"SELECT max({version}) FROM {relation} WHERE {newer}")
    return last, (f"{newer} AND {version} <= {version_literal(last)}" if last is not None else None)


def version_literal(version: Any) -> str:
    """A version as an SQL literal: a whole number or text."""
    if isinstance(version, int) and not isinstance(version, bool):
        return str(version)
    if isinstance(version, str):
        return "'" + version.replace("'", "''") + "'"
    raise ProgrammingError(f"a version {version!r}", why="versions are whole numbers or text", hint="cast the column")


def _version_column(columns: Iterable[str], version: str) -> str:
    found = next((name for name in columns if name.casefold() == version.casefold()), None)
    if found is None:
        raise ProgrammingError(
            f"the table of changes has no column {version}",
            why="it tells which changes have been taken in: each commit's is greater than those before",
            hint="name such a column: OPTIONS (version = '...')",
        )
    return found

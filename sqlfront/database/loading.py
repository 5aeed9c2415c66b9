"""Rows of ordinary tables on their way to the engine: read without loss, computed on by DuckDB."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from sqlfront.database.failures import expect_copy
from sqlfront.database.user_settings import lossless
from sqlfront.maintenance.relation.base_relation import Relation
from sqlfront.storage.codecs import casting
from sqlfront.storage.codecs.casting import Settings, under
from sqlfront.storage.codecs.transport import arrived_sql, column_sql, may_be_carried
from sqlfront.storage.errors import DataError
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 1 << 16
"""Rows of a table that are read at once."""
_MOST_PREPARED = 64
_GUARDS = ("TRY(", "COALESCE(")
_FEW = 1 << 11
"""Rows that take less time than to optimize a query, which a prepared one is each time it runs."""


class _Way(Enum):
    """How DuckDB takes a query: as its optimizer likes, with each expression where it is, or without an optimizer."""

    FREELY = auto()
    IN_PLACE = auto()
    AS_WRITTEN = auto()


class Evaluator:
    """SQL over a batch of rows, by DuckDB on private connections.

    A query is prepared once per schema, text and settings: parsing and binding cost more than a small batch. DuckDB
    binds it at each run once something else has been registered, so it is then prepared anew. Scans of one statement
    may ask from several threads; one computes at a time. `queries` counts what DuckDB was asked, `rows` what it was
    handed.
    """

    def __init__(self) -> None:
        self.queries = self.rows = 0
        self._prepared: dict[tuple[pa.Schema, str, Settings], _Prepared] = {}
        self._cursors: dict[tuple[_Way, Settings], Any] = {}
        self._lock = threading.Lock()

    @functools.cached_property
    def _con(self) -> Any:
        return casting.session()

    @functools.cached_property
    def _con_for_guards(self) -> Any:
        """A database that leaves expressions where they are: the other takes common subexpressions out of `_GUARDS`,
        and so evaluates them on all rows."""
        return casting.session("common_subexpressions")

    def _cursor(self, way: _Way, settings: Settings) -> Any:
        if (way, settings) not in self._cursors:
            lossless = ("arrow_lossless_conversion", "true")
            connection = self._con if way == _Way.FREELY else self._con_for_guards
            cursor = self._cursors[way, settings] = under(connection, (lossless, *settings))
            if way == _Way.AS_WRITTEN:
                cursor.execute("PRAGMA disable_optimizer")
        return self._cursors[way, settings]

    def __call__(
        self,
        rows: pa.Table | pa.RecordBatch,
        types: Mapping[str, str],
        expressions: Sequence[str],
        filters: Mapping[str, str] | None = None,
        settings: Settings = (),
    ) -> pa.Table:
        """The expressions' values over the columns cast to `types`, in row order. DataError if one has none.

        They are computed under DuckDB's defaults but for `settings`. `filters` are columns that are computed from
        those first. If they are given, if only as {}, DuckDB evaluates an expression under TRY, CASE or COALESCE just
        where it is needed. A few rows are computed without DuckDB's optimizer, which takes three times as long as
        they do, unless one fails that the optimizer may leave out.
        """
        select = ", ".join(f"{expression} AS e{i}" for i, expression in enumerate(expressions))
        computed = "".join(f", {text} AS {quote(name)}" for name, text in (filters or {}).items())
        source = f"(SELECT *{computed} FROM {{rows}})" if computed else "{rows}"
        texts = "" if filters is None else "".join((*expressions, *filters.values())).upper()
        query = f"SELECT {select} FROM {source}"
        if rows.num_rows <= _FEW:
            with suppress(DataError):
                return self._run(rows, types, query, _Way.AS_WRITTEN, settings)
        way = _Way.IN_PLACE if any(guard in texts for guard in _GUARDS) else _Way.FREELY
        return self._run(rows, types, query, way, settings)

    def query(
        self, rows: pa.Table | pa.RecordBatch, types: Mapping[str, str], query: str, settings: Settings = ()
    ) -> pa.Table:
        """The rows of a query over `{rows}`, whose columns are cast to `types`. DataError if a value cannot be
        computed."""
        return self._run(rows, types, query, _Way.FREELY, settings)

    def _run(
        self,
        rows: pa.Table | pa.RecordBatch,
        types: Mapping[str, str],
        query: str,
        way: _Way,
        settings: Settings,
    ) -> pa.Table:
        import duckdb
        import pyarrow as pa

        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        arrows = table.schema
        casts = ", ".join(
            f"{arrived_sql(name, type_, arrows.field(name).type)} AS {quote(name)}" for name, type_ in types.items()
        )
        try:
            with self._lock:
                prepared = self._prepare(table.schema, casts, query, way, settings)
                source, self.queries, self.rows = prepared.source, self.queries + 1, self.rows + table.num_rows
                source.table = table
                try:
                    expect_copy()
                    result: pa.Table = prepared.con.execute(f"EXECUTE {prepared.name}").to_arrow_table()
                    return result.combine_chunks()
                finally:
                    source.table = _no_rows(table.schema)
        except duckdb.Error as error:
            raise DataError("a computed column of a view fails on a changed row", why=str(error)) from error

    def _prepare(self, schema: pa.Schema, casts: str, query: str, way: _Way, settings: Settings) -> _Prepared:
        key = schema, f"{casts} {query} {way}", settings
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) >= _MOST_PREPARED:
                self._forget()
            number = len(self._prepared)
            source = _Rows(_no_rows(schema))
            con = self._cursor(way, settings)
            con.register(f"__rows{number}", source)
            text = _exported(con, query.replace("{rows}", f"(SELECT {casts} FROM __rows{number})"))
            con.execute(f"PREPARE __q{number} AS {text}")
            found = self._prepared[key] = _Prepared(source, f"__q{number}", con, text, number)
        elif found.last < len(self._prepared) - 1:
            found.con.execute(f"PREPARE {found.name} AS {found.text}")
            found.last = len(self._prepared) - 1
        return found

    def _forget(self) -> None:
        for number, one in enumerate(self._prepared.values()):
            one.con.execute(f"DEALLOCATE {one.name}")
            one.con.unregister(f"__rows{number}")
        self._prepared.clear()


@dataclass
class _Prepared:
    """A prepared query, what it scans, and the number of the `last` query that was registered when it was prepared."""

    source: _Rows
    name: str
    con: Any
    text: str
    last: int


def _exported(con: Any, query: str) -> str:
    """The query with its columns as they leave DuckDB."""
    if not may_be_carried(query):
        return query
    columns = [(name, type_) for name, type_, *_ in con.execute(f"DESCRIBE {query}").fetchall()]
    return f"SELECT {', '.join(column_sql(*column) for column in columns)} FROM ({query})"


def _no_rows(schema: pa.Schema) -> pa.Table:
    """A table without batches: pyarrow makes no empty array of a union, nor of an extension type in another type."""
    import pyarrow as pa

    return pa.Table.from_batches([], schema)


class _Rows:
    """What a prepared query scans: the batch of the moment."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def load_rows(con: Any, database: str, relation: Relation) -> Iterator[pa.RecordBatch]:
    """The rows of an ordinary table as the transaction of `con` sees them, in the relation's column order."""
    columns = ", ".join(column_sql(column.name, column.type) for column in relation.columns)
    with lossless(con):
        yield from con.sql(f"SELECT {columns} FROM {quote(database)}.{relation.name}").to_arrow_reader(BATCH)


def count_rows(con: Any, database: str, relation: Relation) -> int:
    """How many rows `load_rows` will give."""
    [(count,)] = con.execute(f"SELECT count(*) FROM {quote(database)}.{relation.name}").fetchall()
    return int(count)

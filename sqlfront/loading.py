"""Rows of ordinary tables on their way to the engine: read without loss, computed on by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maintenance.relation import Relation
from storage.capture_sql import quote
from storage.casting import connect as private_connection
from storage.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


class Evaluator:
    """SQL expressions over a batch of rows, by DuckDB on a private connection; one thread at a time."""

    def __init__(self) -> None:
        self._con = private_connection()
        self._con.execute("SET arrow_lossless_conversion = true")

    def __call__(
        self, rows: pa.Table | pa.RecordBatch, types: Mapping[str, str], expressions: Sequence[str]
    ) -> pa.Table:
        """The expressions' values over the columns cast to `types`, in row order. DataError if one has none."""
        import duckdb
        import pyarrow as pa

        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        self._con.register("__rows", table)
        try:
            casts = ", ".join(f"CAST({quote(name)} AS {type_}) AS {quote(name)}" for name, type_ in types.items())
            select = ", ".join(f"{expression} AS e{i}" for i, expression in enumerate(expressions))
            query = f"SELECT {select} FROM (SELECT {casts} FROM __rows)"
            return self._con.sql(query).to_arrow_table().combine_chunks()
        except duckdb.Error as error:
            raise DataError("a computed column of a view fails on a changed row", why=str(error)) from error
        finally:
            self._con.unregister("__rows")


def load_rows(con: Any, relation: Relation) -> Iterator[pa.RecordBatch]:
    """The rows of an ordinary table as the transaction of `con` sees them, in the relation's column order."""
    columns = ", ".join(quote(column.name) for column in relation.columns)
    with lossless(con):
        yield from con.sql(f"SELECT {columns} FROM {relation.name}").to_arrow_reader(65536)


@contextmanager
def lossless(con: Any) -> Iterator[None]:
    """Arrow results of `con` from which every DuckDB type can be restored, for the time of the body."""
    con.execute("SET SESSION arrow_lossless_conversion = true")
    try:
        yield
    finally:
        forget_lossless(con)


def forget_lossless(con: Any) -> None:
    """Back to plain Arrow results. An aborted transaction takes no SET: `rollback` does it then."""
    import duckdb

    try:
        con.execute("RESET SESSION arrow_lossless_conversion")
    except duckdb.TransactionException as error:
        if "aborted" not in str(error):
            raise

"""Casts by DuckDB itself, for input that is not already in a column's type."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from sqlfront.storage.codecs.nested_types import parse_nested, with_fields
from sqlfront.storage.codecs.transport import arrived_sql, exported, is_carried
from sqlfront.storage.errors import DataError
from sqlfront.storage.sql_text import literal, quote

Settings = tuple[tuple[str, str], ...]
"""DuckDB's settings under which expressions are computed, those that are not DuckDB's defaults."""


def connect(*disabled: str) -> duckdb.DuckDBPyConnection:
    """A private in-memory database of one thread that computes rows in their order, without some optimizers. About
    15 ms.

    DuckDB makes a join of IN with many constants, which puts the rows of small batches behind those of others.
    """
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute(f"SET disabled_optimizers = '{','.join(('in_clause', *disabled))}'")
    return connection


def session(*disabled: str) -> duckdb.DuckDBPyConnection:
    """A session of a private in-memory database that the process has for computing, which keeps nothing."""
    return _for_computing(*disabled).cursor()


_for_computing = cache(connect)


def under(connection: duckdb.DuckDBPyConnection, settings: Settings) -> duckdb.DuckDBPyConnection:
    """A cursor of a connection whose session has these settings."""
    cursor = connection.cursor()
    for name, value in settings:
        cursor.execute(f"SET SESSION {name} = {literal(value)}")
    return cursor


class Caster:
    """CAST as an INSERT would, on a connection of its own that is opened at first need.

    `open` gives another connection than a private one: casts of TIMESTAMP WITH TIME ZONE depend on
    the session's TimeZone. It must be one that nobody else uses meanwhile.
    """

    def __init__(self, open: Callable[[], duckdb.DuckDBPyConnection] = session) -> None:
        self._open = open
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def cast(self, array: pa.Array, type: str) -> pa.Array:
        """The array as DuckDB exports `type` to Arrow without loss. DataError if a value does not fit."""
        with self._lock:
            connection = self._ready()
            try:
                connection.register("__input", pa.table({"x": array}))
                return self._fetch(f"SELECT {arrived_sql('x', type, array.type)} AS x FROM __input", None)
            except (duckdb.Error, pa.ArrowException) as error:
                raise _does_not_fit(f"a value of type {array.type}", type, error) from error
            finally:
                connection.unregister("__input")

    def cast_value(self, value: Any, type: str) -> pa.Array:
        """One Python value, which may be numpy's, as an array of one row."""
        if isinstance(value, np.generic):
            value = value.item()
        if (nested := parse_nested(type)) is not None:
            value = with_fields(value, nested)
        with self._lock:
            self._ready()
            try:
                return self._fetch(f"SELECT CAST(? AS {type}) AS x", [value])
            except (duckdb.Error, pa.ArrowException, OverflowError, UnicodeError) as error:
                raise _does_not_fit(f"the value {_short(value)}", type, error) from error

    def _ready(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = self._open()
            self._connection.execute("SET arrow_lossless_conversion = true")
        return self._connection

    def _fetch(self, sql: str, parameters: list[Any] | None) -> pa.Array:
        assert self._connection is not None
        table = exported(self._connection.sql(sql, params=parameters)).to_arrow_table()
        column = table.column(0).combine_chunks()
        return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def in_own_types(table: pa.Table, types: Mapping[str, str]) -> pa.Table:
    """Rows that were `exported`, in the Arrow types that DuckDB itself gives for columns of these types. It takes about
    2 ms where they differ."""
    carried = {name: type for name, type in types.items() if is_carried(type)}
    if not carried:
        return table
    connection = session()
    connection.execute("SET arrow_lossless_conversion = true")
    connection.register("__exported", table.select(list(carried)))
    columns = (
        f"{arrived_sql(name, type, table.schema.field(name).type)} AS {quote(name)}" for name, type in carried.items()
    )
    found = connection.sql(f"SELECT {', '.join(columns)} FROM __exported").to_arrow_table()
    for name in carried:
        table = table.set_column(table.column_names.index(name), found.schema.field(name), found.column(name))
    return table


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _does_not_fit(what: str, type: str, error: Exception) -> DataError:
    lines = str(error).strip().splitlines()
    return DataError(
        f"{what} does not fit {type}",
        why=lines[0] if lines else error.__class__.__name__,
        hint=f"cast the value to {type} first, or use a wider column type",
    )

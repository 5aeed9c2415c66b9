"""DuckDB's types as Spark's: what a view's columns are in Spark, and the cast that makes them so."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlfront.storage.sql_text import quote

_PLAIN = {
    "BOOLEAN": "boolean", "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "int", "BIGINT": "bigint",
    "FLOAT": "float", "DOUBLE": "double", "VARCHAR": "string", "BLOB": "binary", "DATE": "date",
    "TIMESTAMP": "timestamp_ntz", "TIMESTAMP WITH TIME ZONE": "timestamp",
}  # fmt: skip
_CAST = {
    "UTINYINT": ("smallint", "SMALLINT"), "USMALLINT": ("int", "INTEGER"), "UINTEGER": ("bigint", "BIGINT"),
    "UBIGINT": ("decimal(20,0)", "DECIMAL(20,0)"), "HUGEINT": ("decimal(38,0)", "DECIMAL(38,0)"),
    "TIMESTAMP_S": ("timestamp_ntz", "TIMESTAMP"), "TIMESTAMP_MS": ("timestamp_ntz", "TIMESTAMP"),
    "TIMESTAMP_NS": ("timestamp_ntz", "TIMESTAMP"),
}  # fmt: skip


def spark_type(type_: str) -> tuple[str, str | None]:
    """Spark's type for one of DuckDB's, and the DuckDB type to cast to first; None if there is nothing to cast.

    What Spark has no type for (UUID, TIME, INTERVAL, ENUM, nested types) is a string there.
    """
    if type_ in _PLAIN:
        return _PLAIN[type_], None
    if re.fullmatch(r"DECIMAL\(\d+,\d+\)", type_):
        return type_.lower(), None
    return _CAST.get(type_, ("string", "VARCHAR"))


def spark_schema(columns: Iterable[tuple[str, str]]) -> str:
    """The columns as Spark's DDL."""
    return ", ".join(f"`{name.replace('`', '``')}` {spark_type(type_)[0]}" for name, type_ in columns)


def spark_columns(columns: Iterable[tuple[str, str]]) -> str:
    """A SELECT list that gives the columns in types that Spark has."""
    found = []
    for name, type_ in columns:
        cast = spark_type(type_)[1]
        found.append(f"CAST({quote(name)} AS {cast}) AS {quote(name)}" if cast else quote(name))
    return ", ".join(found)

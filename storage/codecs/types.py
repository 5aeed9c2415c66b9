"""DuckDB's type names, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlfront.storage.errors import NotSupportedError

SCALARS = frozenset((
    '"NULL"', "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "VARCHAR", "JSON", "BLOB", "BIT", "BIGNUM", "UUID", "INTERVAL", "DATE",
    "TIME", "TIME_NS", "TIME WITH TIME ZONE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS",
    "TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS",
))  # fmt: skip
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


@dataclass(frozen=True)
class ScalarType:
    """A scalar type: `family` is the name without parameters; `values` are those of an ENUM, in its order."""

    name: str
    family: str
    width: int = 0
    scale: int = 0
    values: tuple[str, ...] = ()


def parse_type(name: str) -> ScalarType:
    """A type name as DuckDB's DESCRIBE writes it. NotSupportedError names a type that has no codes."""
    name = name.strip()
    if name in SCALARS:
        return ScalarType(name, name)
    if match := _DECIMAL.fullmatch(name):
        return ScalarType(name, "DECIMAL", int(match[1]), int(match[2]))
    if name.startswith("ENUM(") and name.endswith(")"):
        return ScalarType(name, "ENUM", values=_enum_values(name))
    if name == "GEOMETRY" or name.startswith("GEOMETRY("):
        return ScalarType(name, "GEOMETRY")
    raise NotSupportedError(
        f"columns of type {name} cannot be kept in a materialized view",
        why="the type is unknown",
        hint="select its scalar fields, or cast it to VARCHAR",
    )


def _enum_values(name: str) -> tuple[str, ...]:
    quoted = re.findall(r"'((?:[^']|'')*)'", name[len("ENUM(") : -1])
    return tuple(value.replace("''", "'") for value in quoted)

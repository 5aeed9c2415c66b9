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

_MAX = 2**63 - 1
INTEGERS = {"HUGEINT": (-_MAX, _MAX), "BOOLEAN": (0, 1)}
"""The least and the greatest code of each type of whole numbers, as far as they fit a word."""
for _bits, _name in ((8, "TINYINT"), (16, "SMALLINT"), (32, "INTEGER"), (64, "BIGINT")):
    INTEGERS[_name] = (-(2 ** (_bits - 1)), 2 ** (_bits - 1) - 1) if _bits < 64 else (-_MAX, _MAX)
    if _bits < 64:
        INTEGERS["U" + _name] = (0, 2**_bits - 1)


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


def scale_of(type: str) -> int | None:
    """How many decimal digits a number's code has behind the point; None if the type is no whole number or decimal."""
    if type in INTEGERS:
        return 0
    return int(type[8:-1].split(",")[1]) if type.startswith("DECIMAL(") else None


def bounds(type: str) -> tuple[int, int]:
    """The least and the greatest code of a number's type, as far as they fit a word."""
    if type in INTEGERS:
        return INTEGERS[type]
    high = min(10 ** int(type[8:].split(",")[0]) - 1, _MAX)
    return -high, high


def alike(left: str, right: str) -> bool:
    """Whether equal codes of two types mean equal values."""
    if left.startswith("DECIMAL(") and right.startswith("DECIMAL("):
        return scale_of(left) == scale_of(right)
    return left == right

"""Columns of a view beside constants: where DuckDB compares them as the values that the columns' codes stand for."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sqlfront.database.entries import ViewEntry

_COMPARED: dict[str, tuple[type, ...]] = {
    "BOOLEAN": (bool,),
    "VARCHAR": (str,),
    "BLOB": (bytes,),
    "UUID": (uuid.UUID, str),
    "DATE": (datetime.date, str),
    "TIMESTAMP": (datetime.date, str),
    "DECIMAL": (int, decimal.Decimal),
    "FLOAT": (int, float, decimal.Decimal),
    "DOUBLE": (int, float, decimal.Decimal),
    **{
        sign + name: (int, decimal.Decimal)
        for sign in ("", "U")
        for name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
    },
}


_DOUBLE_DIGITS = 15


def compares_as(type_: str, value: Any) -> bool:
    """Whether column = value holds, in DuckDB, only for the column's value that an INSERT makes of `value`.

    Not so for BIGINT = DOUBLE (many BIGINTs are one DOUBLE), nor for VARCHAR = 1 ('01' is equal too).
    """
    allowed = _COMPARED.get(type_.partition("(")[0], ())
    if getattr(value, "tzinfo", None) is not None:
        return False  # Compared as TIMESTAMP WITH TIME ZONE, by the session's TimeZone.
    return isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))


def is_same(type_: str, value: Any) -> bool | None:
    """Whether what an INSERT makes of `value` is equal to it in DuckDB; None where only DuckDB can tell.

    7.6 becomes the INTEGER 8, which it does not equal; '8' equals the INTEGER 8, by a cast of the string.
    """
    if value is None:
        return True
    base, _, scale = type_.rstrip(")").partition("(")
    if base == "DATE":
        return True if type(value) is datetime.date else None
    if base == "TIMESTAMP":
        return True if isinstance(value, datetime.datetime) and value.tzinfo is None else None
    if not compares_as(type_, value) or (isinstance(value, str) and base != "VARCHAR"):
        return None
    if base in ("FLOAT", "DOUBLE") and not isinstance(value, float):
        return None
    if base == "FLOAT":
        return value != value or float(np.float32(value)) == value
    if isinstance(value, decimal.Decimal):
        exponent = value.normalize().as_tuple().exponent
        return -exponent <= int(scale.split(",")[1] if scale else 0) if isinstance(exponent, int) else None
    return True


def orders_as(type_: str, value: Any, *, in_row: bool) -> bool:
    """Whether column < value holds, in DuckDB, for the column's values before the one that an INSERT makes of `value`.

    Not so for INTEGER < 7.6, of which an INSERT makes 8; nor, `in_row`, of a date beside a string: the fields of rows
    are compared as their common type, here as text.
    """
    if value is None or not compares_as(type_, value):
        return False
    base = type_.partition("(")[0]
    cast = base in ("TIMESTAMP", "UUID") or (base == "DATE" and not isinstance(value, datetime.datetime))
    if base == "DOUBLE" and isinstance(value, (int, decimal.Decimal)):
        cast = len(decimal.Decimal(value).as_tuple().digits) <= _DOUBLE_DIGITS  # All ways to round them agree.
    return is_same(type_, value) is True or (cast and not in_row)


def output_variables(entry: ViewEntry) -> dict[str, str]:
    """The output columns (in lower case) that are variables as they are, of a type equality does not change, and
    without a collation."""
    collated = {name for name, _ in entry.definition.collations}
    raw = {column.name: column for column in entry.definition.raw}
    found = {}
    for expression, (name, type_) in zip(entry.definition.projection, entry.definition.columns, strict=True):
        column = raw.get(expression.strip().strip('"'))
        if name in collated or column is None or column.kind != "variable":
            continue
        if column.variable and column.type == type_:
            found[name.casefold()] = column.variable
    return found

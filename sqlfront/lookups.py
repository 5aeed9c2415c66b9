"""Point look-ups: `WHERE column = constant` on a view goes to the tree instead of scanning it.

The reference in the statement's text is replaced by a scan that is narrowed to the constant; DuckDB
still filters, so narrowing can only save work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.database import ViewEntry, scan_name
from sqlfront.ddl import view_query
from sqlfront.names import locate
from sqlfront.statements import Equality, PassThrough
from storage.errors import DataError

if TYPE_CHECKING:
    from sqlfront.connection import Connection

_MISSING = object()


def narrowed(connection: Connection, statement: PassThrough, params: Any) -> str:
    """The statement's text with narrowed scans in place of views that constants pin down."""
    database = connection._database
    if statement.kind not in ("select", "create_table_as", "copy_to") or not database.views:
        return statement.text
    text = statement.text
    for number, reference in reversed(list(enumerate(statement.references or ()))):
        if not reference.equalities:
            continue
        entry = database.views.get(locate(database, connection._duck, reference.parts) or ("", ""))
        if entry is None:
            continue
        where = _codes(connection, entry, reference.equalities, params)
        if where:
            name = f"{scan_name(entry.scan)}_{number}"
            connection._duck.register(name, database.view_scan(entry, connection._session_finder(), where))
            alias = "" if reference.alias else f' AS "{entry.name.name}"'
            query = view_query(entry.definition, entry, name)
            text = f"{text[: reference.start]}({query}){alias}{text[reference.end :]}"
    return text


def _codes(
    connection: Connection, entry: ViewEntry, equalities: Sequence[Equality], params: Any
) -> dict[str, tuple[int, ...]]:
    """The codes of variables that the equalities fix; a value no row can have fixes nothing (DuckDB finds none)."""
    variables = output_variables(entry)
    codes: dict[str, tuple[int, ...]] = {}
    for equality in equalities:
        variable = variables.get(equality.column.casefold())
        if variable is None:
            continue
        value = _value(connection, equality, params)
        if value is _MISSING or value is None:
            continue
        try:
            code = entry.maintained.codecs[variable].find_value(value)
        except DataError:
            continue
        if code is not None:
            codes[variable] = code
    return codes


def output_variables(entry: ViewEntry) -> dict[str, str]:
    """The output columns (in lower case) that are variables as they are, of a type equality does not change."""
    raw = {column.name: column for column in entry.definition.raw}
    found = {}
    for expression, (name, type_) in zip(entry.definition.projection, entry.definition.columns, strict=True):
        column = raw.get(expression.strip().strip('"'))
        if column is not None and column.kind == "variable" and column.variable and column.type == type_:
            found[name.casefold()] = column.variable
    return found


def _value(connection: Connection, equality: Equality, params: Any) -> Any:
    if equality.parameter is None:
        try:
            return connection._duck.sql(f"SELECT {equality.value}").fetchall()[0][0]
        except Exception as error:
            import duckdb

            if isinstance(error, duckdb.Error):
                return _MISSING
            raise
    if isinstance(params, Mapping):
        return params.get(equality.parameter, _MISSING)
    if isinstance(params, Sequence) and equality.parameter.isdigit() and int(equality.parameter) <= len(params):
        return params[int(equality.parameter) - 1]
    return _MISSING

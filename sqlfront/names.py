"""What a name means on a cursor: a view or table of ours, or something that only DuckDB knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.parse_tree import quoted
from sqlfront.tokens import tokenize
from storage.capture import QualifiedName
from storage.errors import NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.database import Database

Key = tuple[str, str]


def locate(database: Database, con: Any, parts: Sequence[str], *, temporary: bool = True) -> Key | None:
    """The key of the view, change table or captured table that `[[catalog.]schema.]name` means here, or None.

    Other databases, earlier schemas of the search path and (with `temporary`) temporary tables hide ours.
    A name that none of ours has costs no query.
    """
    name = parts[-1].casefold()
    ours = {key for key in database.known_keys() if key[1] == name}
    if not ours:
        return None
    if len(parts) > 2:
        key = parts[-2].casefold(), name
        return key if key in ours and parts[-3].casefold() == database.name.casefold() else None
    current, path, current_schema, hidden = con.execute(_CONTEXT, {"name": name}).fetchall()[0]
    here = current.casefold() == database.name.casefold()
    if len(parts) == 2:
        schema = parts[0].casefold()
        if here and (schema, name) in ours:
            return schema, name
        return ("main", name) if schema == database.name.casefold() and ("main", name) in ours else None
    if not here or (temporary and hidden):
        return None
    schemas = [schema.casefold() for schema in path] or [current_schema.casefold()]
    for schema in schemas:
        if (schema, name) in ours:
            return schema, name
        if len(schemas) > 1 and con.execute(_EXISTS, {"schema": schema, "name": name}).fetchall()[0][0]:
            return None
    return None


def new_name(database: Database, con: Any, parts: Sequence[str]) -> QualifiedName:
    """Where a view or change table of this name is created. NotSupportedError for another database."""
    current, schema = con.execute("SELECT current_database(), current_schema()").fetchall()[0]
    catalog = parts[-3] if len(parts) > 2 else current
    if len(parts) == 2 and parts[0].casefold() == database.name.casefold():
        return QualifiedName("main", parts[1])
    if catalog.casefold() != database.name.casefold():
        raise NotSupportedError(
            f"{'.'.join(parts)} would be in database {catalog}",
            why=f"views and change tables live in the database that was opened, {database.name}",
            hint=f"qualify the name with {database.name}, or sqlfront.connect to the other database",
        )
    return QualifiedName(parts[-2] if len(parts) > 1 else schema, parts[-1])


def captured_table(database: Database, key: Key | None) -> QualifiedName:
    """The captured table of this key, spelled as the catalog spells it."""
    return next(table for table in database.capture.tables() if table.key == key)


def shown(name: QualifiedName) -> str:
    """A name as a user would write it: quoted where it must be, without the schema if that is main."""
    own = quoted(name.name)
    return own if name.schema == "main" else f"{quoted(name.schema)}.{own}"


def name_parts(name: str) -> list[str]:
    """The parts of a name written as in SQL: any case, quoted, qualified. ProgrammingError if it is none."""
    tokens = tokenize(name) if isinstance(name, str) else []
    parts = [token.name for token in tokens[::2] if token.is_name]
    if not parts or len(tokens) != 2 * len(parts) - 1 or any(token.text != "." for token in tokens[1::2]):
        raise ProgrammingError(f"{name!r} is not a name", hint='write it as in SQL: orders, main.orders, "my table"')
    return parts


_CONTEXT = """
    SELECT current_database(), current_schemas(false), current_schema(), EXISTS (
        SELECT 1 FROM duckdb_tables() WHERE temporary AND lower(table_name) = $name
        UNION ALL SELECT 1 FROM duckdb_views() WHERE temporary AND lower(view_name) = $name)"""

_EXISTS = """
    SELECT EXISTS (
        SELECT 1 FROM duckdb_tables() WHERE database_name = current_database() AND lower(schema_name) = $schema
            AND lower(table_name) = $name
        UNION ALL SELECT 1 FROM duckdb_views() WHERE database_name = current_database()
            AND lower(schema_name) = $schema AND lower(view_name) = $name)"""

"""What the binder asks about tables, and the answer of a DuckDB database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sqlfront.parse_tree import quoted
from sqlfront.tokens import tokenize

Column = tuple[str, str, bool]


class CatalogView(Protocol):
    """The tables and views that a query can read.

    Tables are named by their *qualified name*: SQL text `schema.table` without the database, each
    part quoted where SQL needs it.
    """

    def resolve(self, parts: Sequence[str]) -> str | None:
        """The qualified name that `[catalog.][schema.]table` means here; None when there is no such relation."""

    def columns(self, table: str) -> list[Column] | None:
        """(name, DuckDB type, declared NOT NULL) in table order; None for an unknown table."""

    def keys(self, table: str) -> list[tuple[str, ...]]:
        """The columns of the primary key and of each UNIQUE constraint."""

    def is_change_table(self, table: str) -> bool:
        """Whether the engine keeps this table."""

    def is_view(self, table: str) -> bool:
        """Whether this is a materialized view."""

    def view_sql(self, table: str) -> str | None:
        """The CREATE VIEW statement of a plain DuckDB view; None for anything else."""


class DuckDBCatalog:
    """The catalog of one DuckDB connection: its tables and plain views, no change tables, no materialized views.

    The connection must not hold an open result. Lookups are remembered, so use one object per statement.
    """

    def __init__(self, con: Any) -> None:
        self._con = con
        self._relations: dict[str, tuple[str, str, str]] = {}
        self._resolved: dict[tuple[str, ...], str | None] = {}

    def resolve(self, parts: Sequence[str]) -> str | None:
        """The qualified name, found as DuckDB does along the current search path; None outside this database."""
        wanted = tuple(part.lower() for part in parts)
        if wanted not in self._resolved:
            self._resolved[wanted] = self._find(wanted)
        return self._resolved[wanted]

    def columns(self, table: str) -> list[Column] | None:
        """Columns of a table or plain view of the current database; a collation is written behind the type."""
        found = self._relations.get(table)
        if found is None:
            return None
        rows = self._con.execute(
            "SELECT column_name, data_type, NOT is_nullable FROM duckdb_columns() "
            "WHERE database_name = current_database() AND schema_name = ? AND table_name = ? ORDER BY column_index",
            found[:2],
        ).fetchall()
        collations = self._collations(found)
        return [(name, kind + collations.get(name.lower(), ""), bool(not_null)) for name, kind, not_null in rows]

    def keys(self, table: str) -> list[tuple[str, ...]]:
        """Declared keys; a view has none."""
        found = self._relations.get(table)
        if found is None:
            return []
        rows = self._con.execute(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE database_name = current_database() "
            "AND schema_name = ? AND table_name = ? AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') "
            "ORDER BY constraint_index",
            found[:2],
        ).fetchall()
        return [tuple(row[0]) for row in rows]

    def is_change_table(self, table: str) -> bool:
        return False

    def is_view(self, table: str) -> bool:
        return False

    def view_sql(self, table: str) -> str | None:
        found = self._relations.get(table)
        return found[2] if found and found[2] else None

    def _collations(self, found: tuple[str, str, str]) -> dict[str, str]:
        """` COLLATE name` by column: DuckDB lists collations nowhere but in the table's CREATE statement."""
        row = self._con.execute(
            "SELECT sql FROM duckdb_tables() WHERE database_name = current_database() "
            "AND schema_name = ? AND table_name = ? AND contains(sql, 'COLLATE')",
            found[:2],
        ).fetchone()
        return _declared_collations(row[0]) if row else {}

    def _find(self, parts: tuple[str, ...]) -> str | None:
        """Prefer the earliest schema of the search path, as DuckDB's own lookup does; temporary relations hide all."""
        schema = parts[-2] if len(parts) > 1 else None
        if schema is None and self._con.execute(_TEMPORARY, {"name": parts[-1]}).fetchone():
            return None
        row = self._con.execute(
            """
            SELECT schema_name, name, sql FROM (
                SELECT database_name, schema_name, table_name AS name, '' AS sql FROM duckdb_tables()
                UNION ALL SELECT database_name, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal)
            WHERE database_name = current_database() AND lower(name) = $name
              AND (CASE WHEN $schema IS NULL THEN list_contains(current_schemas(true), schema_name)
                   ELSE lower(schema_name) = $schema OR ($qualifiers = 1 AND lower(database_name) = $schema) END)
              AND ($qualifiers < 2 OR lower(database_name) = $catalog)
            ORDER BY lower(schema_name) = $schema DESC, list_position(current_schemas(true), schema_name) NULLS LAST
            LIMIT 1
            """,
            {
                "name": parts[-1],
                "schema": schema,
                "qualifiers": len(parts) - 1,
                "catalog": parts[0] if len(parts) > 2 else "",
            },
        ).fetchone()
        if row is None:
            return None
        table = f"{quoted(row[0])}.{quoted(row[1])}"
        self._relations[table] = row
        return table


_TEMPORARY = """
    SELECT 1 FROM duckdb_tables() WHERE temporary AND lower(table_name) = $name
    UNION ALL SELECT 1 FROM duckdb_views() WHERE temporary AND lower(view_name) = $name"""


def _declared_collations(create: str) -> dict[str, str]:
    """The COLLATE clauses of a CREATE TABLE statement by lower-case column name."""
    found, depth, column = {}, 0, ""
    tokens = tokenize(create)
    for previous, token, following in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if depth == 1 and previous is not None and previous.text in "(," and token.is_name:
            column = token.name.lower()
        if token.keyword == "collate" and following is not None:
            found[column] = f" COLLATE {following.text}"
        depth += {"(": 1, ")": -1}.get(token.text, 0)
    return found

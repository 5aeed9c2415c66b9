"""What the binder asks about tables, and the answer of a DuckDB database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from sqlfront.sql.keywords import quoted
from sqlfront.sql.name_parts import NAME, listed_names
from sqlfront.sql.search_path import Found, look_up
from sqlfront.storage.errors import InternalError

Column = tuple[str, str, bool]
ForeignKey = tuple[tuple[str, ...], str, tuple[str, ...]]
"""Columns, the table that they refer to, and its columns."""
Constraint = tuple[str, tuple[str, ...], str, str, tuple[str, ...]]
"""Its kind, the columns, the condition of a CHECK, and what a foreign key refers to: a table and columns."""


class CatalogView(Protocol):
    """The tables and views that a query can read.

    Tables are named by their *qualified name*: SQL text `schema.table` without the database, each
    part quoted where SQL needs it.
    """

    def resolve(self, parts: Sequence[str]) -> str | None:
        """The qualified name that `[catalog.][schema.]table` means here; None when there is no such relation."""

    def parts(self, table: str) -> tuple[str, str, str]:
        """The database, the schema and the name of a qualified name."""

    def columns(self, table: str) -> list[Column] | None:
        """(name, DuckDB type, declared NOT NULL) in table order; None for an unknown table."""

    def keys(self, table: str) -> list[tuple[str, ...]]:
        """The columns of the primary key and of each UNIQUE constraint."""

    def references(self, table: str) -> list[ForeignKey]:
        """The declared foreign keys."""

    def checks(self, table: str) -> list[str]:
        """The conditions of the CHECK constraints, as SQL."""

    def is_change_table(self, table: str) -> bool:
        """Whether the engine keeps this table."""

    def is_view(self, table: str) -> bool:
        """Whether this is a materialized view."""

    def has_macros(self) -> bool:
        """Whether anybody may have defined a macro."""

    def view_sql(self, table: str) -> str | None:
        """The CREATE VIEW statement of a plain DuckDB view; None for anything else."""

    def inlined(self, table: str) -> tuple[list[str], str] | None:
        """The column names (perhaps fewer than it has) and the SELECT of a view read as its text, else None."""


class DuckDBCatalog:
    """The catalog of one DuckDB connection: its tables and plain views, no change tables, no materialized views.

    `database` names the database whose relations count; the current one by default. The connection must not hold
    an open result. Lookups are remembered, so use one object per statement.
    """

    def __init__(self, con: Any, database: str | None = None) -> None:
        self._con = con
        self.database = database if database is not None else con.execute("SELECT current_database()").fetchone()[0]
        self._relations: dict[str, Found] = {}
        self._columns: dict[str, list[Column]] = {}
        self._declared: dict[str, list[Constraint]] = {}
        self._resolved: dict[tuple[str, ...], str | None] = {}

    def resolve(self, parts: Sequence[str]) -> str | None:
        """The qualified name, found as DuckDB does along the current search path; None outside this database."""
        wanted = tuple(part.lower() for part in parts)
        if wanted not in self._resolved:
            self._resolved[wanted] = self._find(wanted)
        return self._resolved[wanted]

    def parts(self, table: str) -> tuple[str, str, str]:
        found = self._relations[table]
        return self.database, found.schema, found.name

    def columns(self, table: str) -> list[Column] | None:
        """Columns of a table or plain view; a collation is written behind the type."""
        found = self._relations.get(table)
        if found is None:
            return None
        if table not in self._columns:
            self._columns[table] = self._read_columns(found)
        return self._columns[table]

    def _read_columns(self, found: Found) -> list[Column]:
        whole = ".".join(map(quoted, (self.database, found.schema, found.name)))
        rows = self._con.execute(f"SELECT column_name, column_type, \"null\" = 'NO' FROM (DESCRIBE {whole})").fetchall()
        collations = self._collations(found)
        return [(name, kind + collations.get(name.lower(), ""), bool(not_null)) for name, kind, not_null in rows]

    def keys(self, table: str) -> list[tuple[str, ...]]:
        """Declared keys; a view has none."""
        return [columns for kind, columns, *_ in self._constraints(table) if kind in ("PRIMARY KEY", "UNIQUE")]

    def references(self, table: str) -> list[ForeignKey]:
        """Declared foreign keys, which DuckDB allows within a schema."""
        found = self._relations.get(table)
        schema = quoted(found.schema) if found is not None else ""
        return [
            (columns, f"{schema}.{quoted(referenced)}", there)
            for kind, columns, _, referenced, there in self._constraints(table)
            if kind == "FOREIGN KEY"
        ]

    def checks(self, table: str) -> list[str]:
        """Declared CHECK constraints."""
        return [condition for kind, _, condition, *_ in self._constraints(table) if kind == "CHECK"]

    def _constraints(self, table: str) -> list[Constraint]:
        """The constraints of a table in order; none of what is not known."""
        found = self._relations.get(table)
        if found is None:
            return []
        if table not in self._declared:
            rows = self._con.execute(
                "SELECT constraint_type, constraint_column_names, expression, referenced_table, "
                "referenced_column_names FROM duckdb_constraints() WHERE database_name = ? AND schema_name = ? "
                "AND table_name = ? ORDER BY constraint_index",
                [self.database, found.schema, found.name],
            ).fetchall()
            self._declared[table] = [
                (kind, tuple(columns or ()), condition or "", referenced or "", tuple(there or ()))
                for kind, columns, condition, referenced, there in rows
            ]
        return self._declared[table]

    def is_change_table(self, table: str) -> bool:
        return False

    def is_view(self, table: str) -> bool:
        return False

    def has_macros(self) -> bool:
        return True  # To know costs as much as to list them.

    def view_sql(self, table: str) -> str | None:
        found = self._relations.get(table)
        if found is None or not found.is_view:
            return None
        [(sql,)] = self._con.execute(
            "SELECT sql FROM duckdb_views() WHERE database_name = ? AND schema_name = ? AND view_name = ?",
            [self.database, found.schema, found.name],
        ).fetchall()
        return str(sql)

    def inlined(self, table: str) -> tuple[list[str], str] | None:
        sql = self.view_sql(table)
        return None if sql is None else view_parts(sql)

    def _collations(self, found: Found) -> dict[str, str]:
        """` COLLATE name` by column: DuckDB lists collations nowhere but in the table's CREATE statement."""
        row = self._con.execute(
            "SELECT sql FROM duckdb_tables() WHERE database_name = ? "
            "AND schema_name = ? AND table_name = ? AND contains(sql, 'COLLATE')",
            [self.database, found.schema, found.name],
        ).fetchone()
        return _declared_collations(row[0]) if row else {}

    def _find(self, parts: tuple[str, ...]) -> str | None:
        found = look_up(self._con, parts).first()
        if found is None or found.database != self.database:
            return None
        table = f"{quoted(found.schema)}.{quoted(found.name)}"
        self._relations[table] = found
        self._resolved[found.database.lower(), found.schema.lower(), found.name.lower()] = table
        return table


def _declared_collations(create: str) -> dict[str, str]:
    """The COLLATE clauses of DuckDB's own CREATE TABLE text by lower-case column name."""
    found = (match.groups() for match in _COLLATED.finditer(create))
    return {listed_names(column)[0].lower(): f" COLLATE {collation}" for column, collation in found if column}


def view_parts(sql: str) -> tuple[list[str], str]:
    """The column names and the SELECT of DuckDB's own CREATE VIEW text."""
    match = _VIEW.fullmatch(sql)
    if match is None:
        raise InternalError("A view's CREATE statement is not understood", where=sql)
    return listed_names(match["names"] or ""), match["query"]


_COLLATED = re.compile(rf"'(?:[^']|'')*'|[(,] ?({NAME}) VARCHAR COLLATE ({NAME}(?:\.{NAME})*)")
_VIEW = re.compile(
    rf"CREATE (?:TEMP(?:ORARY)? )?VIEW {NAME}(?:\.{NAME})*(?: \((?P<names>{NAME}(?:, {NAME})*)\))?"
    r" AS (?P<query>.*?);?\s*",
    re.DOTALL,
)

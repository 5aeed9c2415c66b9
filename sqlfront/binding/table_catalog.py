"""What the binder asks about tables, and the answer of a DuckDB database."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from sqlfront.sql.dialect import parse_one, printed
from sqlfront.sql.keywords import quoted
from sqlfront.sql.name_parts import NAME, listed_names
from sqlfront.sql.search_path import Found, Names
from sqlfront.storage.errors import InternalError
from sqlfront.storage.sql_text import literal

Column = tuple[str, str, bool]
ForeignKey = tuple[tuple[str, ...], str, tuple[str, ...]]
"""Columns, the table that they refer to, and its columns."""
Constraint = tuple[str, tuple[str, ...], str, str, tuple[str, ...]]
"""Its kind, the columns, the condition of a CHECK, and what a foreign key refers to: a table and columns."""

_CONSTRAINT = re.compile("PRIMARY KEY|UNIQUE|FOREIGN KEY|CHECK")  # As DuckDB writes a table's CREATE statement.


class CatalogView(Protocol):
    """The tables and views that a query can read.

    Tables are named by their *qualified name*: SQL text `schema.table` without the database, each
    part quoted where SQL needs it.
    """

    def expect(self, names: Sequence[Sequence[str]]) -> None:
        """Resolve these names in advance, at once."""

    def resolve(self, parts: Sequence[str]) -> str | None:
        """The qualified name that `[catalog.][schema.]table` means here; None when there is no such relation."""

    def parts(self, table: str) -> tuple[str, str, str]:
        """The database, the schema and the name of a qualified name."""

    def columns(self, table: str) -> list[Column] | None:
        """(name, DuckDB type, declared NOT NULL) in table order; None for an unknown table."""

    def collations(self, table: str) -> Mapping[str, str]:
        """The collations of columns by their lower-case names."""

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
    an open result. Answers are remembered, so use one object per statement. Names that are expected together cost one
    query, and so do the columns of all tables looked up so far, and their constraints.
    """

    def __init__(self, con: Any, database: str | None = None) -> None:
        self._con = con
        self.names = Names(con)
        self.database = database if database is not None else con.execute("SELECT current_database()").fetchall()[0][0]
        self._relations: dict[str, Found] = {}
        self._columns: dict[str, list[Column]] = {}
        self._primary: dict[str, list[str]] = {}
        self._declared: dict[str, list[Constraint]] = {}
        self._view_texts: dict[str, str] = {}
        self._resolved: dict[tuple[str, ...], str | None] = {}

    def expect(self, names: Sequence[Sequence[str]], others: Sequence[str] = ()) -> None:
        """Resolve these names in advance, and look up relations called as `others`: all with one query."""
        self.names.expect([*(parts[-1] for parts in names), *others])
        for parts in names:
            self.resolve(parts)

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
        """Columns of a table or plain view."""
        if table not in self._relations:
            return None
        if table not in self._columns:
            self._read_columns(self._pending(self._columns, table))
        return self._columns[table]

    def _read_columns(self, tables: Sequence[str]) -> None:
        asked = (
            f'SELECT {i}, cid, name, type, "notnull", pk '
            f"FROM pragma_table_info({literal('.'.join(map(quoted, self.parts(table))))})"
            for i, table in enumerate(tables)
        )
        rows = self._con.execute(" UNION ALL ".join(asked)).fetchall()
        self._columns |= {table: [] for table in tables}
        self._primary |= {table: [] for table in tables}
        for i, _, name, kind, not_null, is_primary in sorted(rows):
            self._columns[tables[i]].append((name, kind, bool(not_null)))
            self._primary[tables[i]] += [name] if is_primary else []

    def collations(self, table: str) -> Mapping[str, str]:
        """DuckDB lists collations nowhere but in the table's CREATE statement."""
        found = self._relations.get(table)
        return {} if found is None or found.is_view or "COLLATE" not in found.sql else _declared(found.sql)

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
        """The constraints of a table in order; none of a view, and of what is not known."""
        if not self._may_declare(table):
            return []
        if table not in self._declared and (key := self._only_key(table)) is not None:
            self._declared[table] = [("PRIMARY KEY", (key,), "", "", ())]
        if table not in self._declared:
            self._read_constraints([*filter(self._may_declare, self._pending(self._declared, table))])
        return self._declared[table]

    def _may_declare(self, table: str) -> bool:
        """Whether a table's CREATE statement has words of constraints: DuckDB looks at all tables of all databases to
        list them, for 7 ms where nothing else has, and 1 ms again."""
        found = self._relations.get(table)
        return found is not None and not found.is_view and _CONSTRAINT.search(found.sql) is not None

    def _only_key(self, table: str) -> str | None:
        """The column of a table's primary key; None if it has several, or there may be other constraints."""
        if self.columns(table) and set(_CONSTRAINT.findall(self._relations[table].sql)) == {"PRIMARY KEY"}:
            key = self._primary[table]
            return key[0] if len(key) == 1 else None
        return None

    def _read_constraints(self, tables: Sequence[str]) -> None:
        places = {self.parts(table): table for table in tables}
        rows = self._con.execute(
            "SELECT database_name, schema_name, table_name, constraint_index, constraint_type, "
            "constraint_column_names, expression, referenced_table, referenced_column_names "
            f"FROM duckdb_constraints() WHERE table_name IN ({', '.join(literal(name) for *_, name in places)})",
        ).fetchall()
        self._declared |= {table: [] for table in tables}
        for *name, _, kind, columns, condition, referenced, there in sorted(rows, key=lambda row: row[3]):
            if tuple(name) in places:
                constraint = (kind, tuple(columns or ()), condition or "", referenced or "", tuple(there or ()))
                self._declared[places[tuple(name)]].append(constraint)

    def _pending(self, known: Collection[str], table: str) -> list[str]:
        """A relation and the tables found so far, as far as they are not known."""
        others = (other for other, found in self._relations.items() if not found.is_view and other not in known)
        return list(dict.fromkeys((table, *others)))

    def size(self, table: str) -> float | None:
        """The estimated rows of a table that has been looked up, at least 1; None for anything else."""
        found = self._relations.get(table)
        return None if found is None or found.is_view else float(max(1, found.size))

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
        if table not in self._view_texts:
            self._view_texts[table] = self.names.view_sql(found)
        return self._view_texts[table]

    def inlined(self, table: str) -> tuple[list[str], str] | None:
        sql = self.view_sql(table)
        if sql is None:
            return None
        names, select = view_parts(sql)
        if not self.has_macros():
            return names, select
        from sqlfront.binding.macros import Macros
        from sqlfront.binding.notes import Notes

        return names, printed(Macros(self._con).put_in(parse_one(select), Notes(select)))

    def _find(self, parts: tuple[str, ...]) -> str | None:
        found = self.names.look_up(parts).first()
        if found is None or found.database != self.database:
            return None
        table = f"{quoted(found.schema)}.{quoted(found.name)}"
        self._relations[table] = found
        self._resolved[found.database.lower(), found.schema.lower(), found.name.lower()] = table
        return table


def _declared(create: str) -> dict[str, str]:
    """The COLLATE clauses of DuckDB's own CREATE TABLE text by lower-case column name."""
    found = (match.groups() for match in _COLLATED.finditer(create))
    return {listed_names(column)[0].lower(): ".".join(listed_names(collation)) for column, collation in found if column}


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

"""What a relation's name means to DuckDB: the places it is looked for, in order, and what is there.

DuckDB looks into the temporary schema, the schemas of the search path, main, and its own catalog. A
name before the dot is a database or a schema of any of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlfront.sql.remembered import ask
from sqlfront.storage.capture import prepared
from sqlfront.storage.sql_text import literal

Place = tuple[str, str]


@dataclass(frozen=True)
class Found:
    """A table or view as the catalog spells it, and the CREATE statement and the estimated rows of a table."""

    database: str
    schema: str
    name: str
    is_view: bool
    sql: str
    size: int


@dataclass(frozen=True)
class Lookup:
    """The (database, schema) pairs where a name is looked for, in lower case, and the relations of that name."""

    places: tuple[Place, ...]
    relations: dict[Place, Found]

    def first(self) -> Found | None:
        """The relation that the name means, if there is one."""
        return next((self.relations[place] for place in self.places if place in self.relations), None)


def look_up(con: Any, parts: Sequence[str], *, temporary: bool = True) -> Lookup:
    """Where `[[catalog.]schema.]name` is looked for on a cursor, and what is there: see `Names`."""
    return Names(con).look_up(parts, temporary=temporary)


def search_path(con: Any) -> tuple[str, str]:
    """The current database of a cursor, and the setting search_path."""
    current, path = ask(con, "SELECT current_database(), current_setting('search_path')")
    return current, path


class Names:
    """What names mean on a cursor. Each question is asked once, so use one object per statement.

    Costs two small queries, which are cheaper than one of all; a third if a word before a name may be a database or a
    schema. Names that are expected together are looked up together.
    """

    def __init__(self, con: Any) -> None:
        self._con = con
        self._named: dict[str, list[Found]] = {}

    def expect(self, names: Iterable[str]) -> None:
        """Look up all relations of these names, unless that has been done."""
        missing = sorted({name.lower() for name in names} - self._named.keys())
        if missing:
            self._named |= {name: [] for name in missing}
            query = _RELATIONS.format(", ".join(map(literal, missing)))
            # A single name is often looked up again: a prepared query takes half the time.
            rows = prepared.ask(self._con, query) if len(missing) == 1 else self._con.execute(query).fetchall()
            for row in rows:
                self._named[row[2].lower()].append(Found(*row))

    def look_up(self, parts: Sequence[str], *, temporary: bool = True) -> Lookup:
        """Where `[[catalog.]schema.]name` is looked for, and what is there; temporary relations if `temporary`."""
        qualifiers = [part.casefold() for part in parts[:-1]]
        databases = self._databases if len(qualifiers) == 1 else ()
        places = _places(qualifiers, self.current.casefold(), self._path[1], databases)
        self.expect(parts[-1:])
        return Lookup(tuple(place for place in places if temporary or place[0] != "temp"), self._placed(parts[-1]))

    def at(self, database: str, schema: str, name: str) -> Found | None:
        """The relation of this name in one schema."""
        self.expect([name])
        return self._placed(name).get((database.casefold(), schema.casefold()))

    def view_sql(self, view: Found) -> str:
        """The CREATE VIEW statement. It is not among the facts of a relation: DuckDB would write that of each view."""
        place = [view.database, view.schema, view.name]
        [(sql,)] = self._con.execute(_VIEW_SQL, place).fetchall()
        return str(sql)

    def _placed(self, name: str) -> dict[Place, Found]:
        found = self._named[name.lower()]
        return {(one.database.casefold(), one.schema.casefold()): one for one in found}

    @property
    def current(self) -> str:
        """The current database."""
        return self._path[0]

    @cached_property
    def _path(self) -> tuple[str, str]:
        return search_path(self._con)

    @cached_property
    def _databases(self) -> list[str]:
        asked = "SELECT database_name FROM duckdb_databases()"
        return [database.casefold() for (database,) in self._con.execute(asked).fetchall()]


def _places(qualifiers: Sequence[str], current: str, path: str, databases: Sequence[str]) -> list[Place]:
    if len(qualifiers) > 1:
        return [(qualifiers[0], qualifiers[1])]
    written = _entries(path)
    entries = [(database or current, schema) for database, schema in written]
    everywhere = [("temp", "main"), *entries, (current, "main"), ("system", "main"), ("system", "pg_catalog")]
    if not qualifiers:
        return everywhere
    [qualifier] = qualifiers
    inside = [place for place in written if place[0] == qualifier] or [(qualifier, "main")]
    schemas = [place for place in everywhere if place[1] == qualifier] or [(current, qualifier)]
    return [*inside, *schemas] if qualifier in databases else schemas


def _entries(path: str) -> list[Place]:
    """The entries `[database.]schema` of the setting search_path; the database is empty where none is written.

    DuckDB quotes only names with a dot, a comma or a quote in them.
    """
    entries: list[Place] = []
    for match in _ENTRY.finditer(path):
        database, schema = (name[1:-1].replace('""', '"') if name[:1] == '"' else name for name in match.groups(""))
        entries.append((database.casefold(), schema.casefold()))
    return entries


_VIEW_SQL = "SELECT sql FROM duckdb_views() WHERE database_name = ? AND schema_name = ? AND view_name = ?"
_NAME = r'("(?:[^"]|"")*"|[^.,"]+)'
_ENTRY = re.compile(rf"(?:{_NAME}\.)?{_NAME}")
# DuckDB makes its own views, in `system`, when they are first listed, which takes 10 ms: the filter spares it.
_RELATIONS = """
    SELECT database_name, schema_name, table_name, false, sql, estimated_size FROM duckdb_tables()
    WHERE database_name <> 'system' AND lower(table_name) IN ({0})
    UNION ALL SELECT database_name, schema_name, view_name, true, '', 0 FROM duckdb_views()
    WHERE database_name <> 'system' AND NOT internal AND lower(view_name) IN ({0})"""

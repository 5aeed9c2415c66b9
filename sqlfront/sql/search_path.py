"""What a relation's name means to DuckDB: the places it is looked for, in order, and what is there.

DuckDB looks into the temporary schema, the schemas of the search path, main, and its own catalog. A
name before the dot is a database or a schema of any of these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Place = tuple[str, str]


@dataclass(frozen=True)
class Found:
    """A table or view as the catalog spells it."""

    database: str
    schema: str
    name: str
    is_view: bool


@dataclass(frozen=True)
class Lookup:
    """The (database, schema) pairs where a name is looked for, in lower case, and the relations of that name."""

    places: tuple[Place, ...]
    relations: dict[Place, Found]

    def first(self) -> Found | None:
        """The relation that the name means, if there is one."""
        return next((self.relations[place] for place in self.places if place in self.relations), None)


def look_up(con: Any, parts: Sequence[str], *, temporary: bool = True) -> Lookup:
    """Where `[[catalog.]schema.]name` is looked for on a cursor, and what is there: two small queries are cheaper than
    one of all, a third if a word before the name may be a database or a schema.

    Without `temporary`, temporary relations are passed over.
    """
    qualifiers = [part.casefold() for part in parts[:-1]]
    [(current, path)] = con.execute("SELECT current_database(), current_setting('search_path')").fetchall()
    asked = "SELECT database_name FROM duckdb_databases()" if len(qualifiers) == 1 else None
    databases = [database.casefold() for (database,) in con.execute(asked).fetchall()] if asked else []
    places = _places(qualifiers, current.casefold(), path, databases)
    found = [Found(*row) for row in con.execute(_RELATIONS, {"name": parts[-1].lower()}).fetchall()]
    relations = {(one.database.casefold(), one.schema.casefold()): one for one in found}
    if not temporary:
        places = [place for place in places if place[0] != "temp"]
    return Lookup(tuple(places), relations)


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


_NAME = r'("(?:[^"]|"")*"|[^.,"]+)'
_ENTRY = re.compile(rf"(?:{_NAME}\.)?{_NAME}")
_RELATIONS = """
    SELECT database_name, schema_name, table_name, false FROM duckdb_tables() WHERE lower(table_name) = $name
    UNION ALL SELECT database_name, schema_name, view_name, true FROM duckdb_views() WHERE lower(view_name) = $name"""

"""The binder's view of the catalog: DuckDB's tables, and what the engine keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlfront.binding.freeze import qualified_query
from sqlfront.binding.session_settings import asks_time_zone, deviating, settings_of
from sqlfront.binding.table_catalog import Column, DuckDBCatalog, ForeignKey
from sqlfront.database.database import Database
from sqlfront.database.entries import ViewEntry
from sqlfront.planner.model.query import Definition, output_keys
from sqlfront.sql.name_parts import split_name
from sqlfront.storage.capture.capture import QualifiedName


class EngineCatalog(DuckDBCatalog):
    """DuckDB's catalog with change tables and materialized views in it. Use one object per statement.

    `views_read` are the materialized views that a binding has asked for, as the binder calls them. `replacements` are
    those that take the places of views of the same names when the open transaction commits.
    """

    def __init__(self, database: Database, con: Any, replacements: Iterable[ViewEntry] = ()) -> None:
        super().__init__(con, database.name)
        self._database = database
        self._replacements = {entry.name.key: entry for entry in replacements}
        self._names: dict[str, QualifiedName] = {}
        self.views_read: dict[str, ViewEntry] = {}

    def resolve(self, parts: Sequence[str]) -> str | None:
        found = super().resolve(parts)
        if found is not None:
            relation = self._relations[found]
            self._names[found] = QualifiedName(relation.schema, relation.name)
        return found

    def name(self, table: str) -> QualifiedName:
        """The qualified name behind the binder's text for a table."""
        if table not in self._names:
            self._names[table] = QualifiedName(*split_name(table))
        return self._names[table]

    def columns(self, table: str) -> list[Column] | None:
        change_table = self._database.change_tables.get(self.name(table).key)
        if change_table is not None:
            return [(c.name, c.type, c.not_null) for c in change_table.columns]
        view = self._view(table)
        if view is not None:
            return [(name, type_, False) for name, type_ in view.definition.columns]
        return super().columns(table)

    def collations(self, table: str) -> Mapping[str, str]:
        view = self._view(table)
        if view is None:
            return {} if self.is_change_table(table) else super().collations(table)
        return {name.lower(): collation for name, collation in view.definition.collations}

    def keys(self, table: str) -> list[tuple[str, ...]]:
        change_table = self._database.change_tables.get(self.name(table).key)
        if change_table is not None:
            return list(change_table.keys)
        view = self._view(table)
        return output_keys(view.definition) if view is not None else super().keys(table)

    def references(self, table: str) -> list[ForeignKey]:
        return [] if self.is_change_table(table) else super().references(table)

    def checks(self, table: str) -> list[str]:
        return [] if self.is_change_table(table) else super().checks(table)

    def is_change_table(self, table: str) -> bool:
        return self.name(table).key in self._database.change_tables

    def is_view(self, table: str) -> bool:
        return self.name(table).key in self._database.views

    def has_macros(self) -> bool:
        return bool(self._database.macro_texts(self._con))

    def view_sql(self, table: str) -> str | None:
        return None if self.is_change_table(table) or self.is_view(table) else super().view_sql(table)

    def inlined(self, table: str) -> tuple[list[str], str] | None:
        """Materialized views that only select, project and join, whole tables, are read as their text too. A union is
        not: its branches would be followed twice; nor is a view that was created under other settings."""
        view = self._view(table)
        if view is None:
            return super().inlined(table)
        self.views_read[table] = view
        definitions = (view.definition, *(block for _, block in view.definition.derived))
        limited = any(not isinstance(block, Definition) or block.limit is not None for block in definitions)
        united = view.definition.unions or view.definition.merged
        if view.definition.mode != "bag" or limited or united or self._is_frozen(view):
            return None
        return list(view.column_names), qualified_query(view.select, self.database)

    def _is_frozen(self, view: ViewEntry) -> bool:
        """Whether a view's text would have another answer under the session's settings."""
        own = view.definition.settings
        return own != deviating(settings_of(self._con), zoned=asks_time_zone(own))

    def _view(self, table: str) -> ViewEntry | None:
        key = self.name(table).key
        if key in self._replacements:
            return self._replacements[key]
        if key in self._database.unbuilt:
            raise self._database.unbuilt[key].error()
        return self._database.views.get(key)

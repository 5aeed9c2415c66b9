"""The option `apply = 'on read'`: a deferred view, whose changes wait until it is read (`maintenance/deferred.py`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.database.names import shown
from sqlfront.define.parts import ComputedPart, Part, Parts, renamed
from sqlfront.planner.model.query import Definition
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import StoredView, ViewEntry

ON_READ = "on read"


def is_deferred(view: StoredView) -> bool:
    return view.options.get("apply") == ON_READ


def copies_for(
    database: Database, view: StoredView, tables: Collection[str], fed: Sequence[ViewEntry]
) -> dict[str, str]:
    """The copies that a view needs of the relations that it reads, by these; none if it is not deferred. It reads these
    tables, and the views `fed` through their changes.

    NotSupportedError where it cannot be deferred, or must be.
    """
    if not is_deferred(view):
        for source in fed:
            if is_deferred(source):
                raise _reads_deferred(view, source)
        return {}
    for table in database.change_tables.values():
        if database.relation_key(table.name) in tables and not table.retain:
            raise NotSupportedError(
                f"materialized view {shown(view.name)} cannot be applied on read",
                why=f"change table {shown(table.name)} was created WITH (retain = false): only the rows that views "
                "keep tell whether a row that goes was there, and these would be behind",
                hint="create the change table WITH (retain = true), or leave apply out",
            )
    read = [*tables, *(source.maintained.name for source in fed)]
    return {name: f"{name.partition('#')[0]}#{view.scan}" for name in sorted(read)}


def with_copies(parts: Parts, copies: Mapping[str, str]) -> Parts:
    """The parts over copies of what they read."""
    return [_copied(part, copies) for part in parts]


def _copied(part: Part | ComputedPart, copies: Mapping[str, str]) -> Part | ComputedPart:
    if isinstance(part, Part):
        return replace(part, definition=_over(part.definition, copies))
    return replace(part, rows=part.rows.renamed(copies))


def refuse_switch(database: Database, entry: ViewEntry, apply: str) -> None:
    """NotSupportedError if a view cannot be applied so, as it reads a deferred view, or a view reads it that is not
    deferred, through its changes."""
    relations = database.engine.relations.values()
    name = entry.maintained.name
    if apply == ON_READ:
        for reader in database.dependents(entry):
            own = reader.maintained.name
            nodes = [node for node in database.engine.nodes.values() if node.name.partition("/")[0] == own]
            if not is_deferred(reader) and any(name in node.relations for node in nodes):
                raise _reads_deferred(reader, entry)
        return
    read = {relation.copy_of for relation in relations if relation.owner == name}
    for source in entry.sources.values():
        if is_deferred(source) and source.maintained.name in read:
            raise _reads_deferred(entry, source)


def _reads_deferred(reader: StoredView, source: StoredView) -> NotSupportedError:
    return NotSupportedError(
        f"materialized view {shown(reader.name)} cannot be applied at commit",
        why=f"it reads {shown(source.name)} through its changes, and these wait until {shown(source.name)} is read: "
        f"{shown(source.name)} was created WITH (apply = '{ON_READ}')",
        hint=f"create {shown(reader.name)} WITH (apply = '{ON_READ}') too, or ALTER MATERIALIZED VIEW "
        f"{shown(source.name)} SET (apply = 'at commit')",
    )


def _over(definition: Definition, copies: Mapping[str, str]) -> Definition:
    note = "its changes wait until it is read (apply = 'on read'): it keeps stores of its own"
    return renamed(replace(definition, notes=(*definition.notes, note)), copies)

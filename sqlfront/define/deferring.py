"""The option `apply = 'on read'`: a deferred view, whose changes wait until it is read (`maintenance/deferred.py`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.database.names import shown
from sqlfront.define.part import ComputedPart, Part, Parts
from sqlfront.define.parts import renamed
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

    A deferred view among them is reached by each epoch from now on. NotSupportedError where it cannot be deferred.
    """
    if not is_deferred(view):
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
        weights = tuple((copies.get(table, table), rate) for table, rate in part.plan.weights)
        return replace(part, definition=_over(part.definition, copies), plan=replace(part.plan, weights=weights))
    return replace(part, rows=part.rows.renamed(copies))


def _over(definition: Definition, copies: Mapping[str, str]) -> Definition:
    note = "its changes wait until it is read (apply = 'on read'): it keeps stores of its own"
    return renamed(replace(definition, notes=(*definition.notes, note)), copies)

"""Views as a snapshot describes them: with the parts that they consist of, as they are planned at the moment.

So a view that comes back is the view that was there, and is neither bound nor planned. Its stored query may have
another plan: a stored query has all orders completed, and a running view may have got another plan. A plan rests on the
declarations of its tables, which are part of the snapshot's key.

Cost: O(size of the plans).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlfront.database.names import shown
from sqlfront.define.drafts import Draft
from sqlfront.define.part import ComputedPart, Part
from sqlfront.maintenance.output.node import Node, TreeNode
from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.snapshots.plan_values import read, written
from sqlfront.sql.name_parts import split_name
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import OperationalError

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import StoredView, ViewEntry

Described: TypeAlias = Mapping[str, Any]
"""A view, as `describe` makes it: values of JSON."""


@dataclass(frozen=True)
class KeptReads:
    """What a view of a snapshot reads."""

    tables: set[str]
    sources: Mapping[str, ViewEntry]
    fed: Mapping[str, ViewEntry]


def describe(database: Database, entry: ViewEntry) -> dict[str, Any]:
    """A view with its parts, whose names are `nodes`, and with what it reads: `tables`, `copies` of relations, and
    views as their scans."""
    engine = database.engine
    nodes = engine.nodes_of(entry.maintained)
    relations = {name for node in nodes for name in node.relations}
    feeds = {name: relation.name for relation in engine.relations.values() for name in relation.fed_by}
    copies = {copy.copy_of: copy.name for copy in map(engine.relations.__getitem__, sorted(relations)) if copy.copy_of}
    read_by_nodes = relations | copies.keys()
    return {
        "scan": entry.scan,
        "name": shown(entry.name),
        "nodes": [node.name for node in nodes],
        "parts": [_described(node, feeds.get(node.name)) for node in nodes],
        "tables": sorted(entry.tables),
        "copies": copies,
        "sources": {key: source.scan for key, source in entry.sources.items()},
        "fed": [key for key, source in entry.sources.items() if source.maintained.name in read_by_nodes],
    }


def columns_of_tables(database: Database) -> dict[str, list[tuple[str, str, bool]]]:
    """The columns of the captured tables, as the engine knows them."""
    known = database.engine.relations
    names = [database.relation_key(table) for table in database.capture.tables()]
    return {name: [astuple(column) for column in known[name].columns] for name in names if name in known}


def follow(database: Database, con: Any, views: Iterable[Described], columns: Mapping[str, Any]) -> None:
    """Let the engine have the tables that views read, with these columns. OperationalError if changes of a table may
    have gone unseen."""
    read = dict.fromkeys(name for described in views for name in described["tables"] if name in columns)
    tables = {name: [Column(*one) for one in columns[name]] for name in read}
    needed = {QualifiedName(*split_name(name)): [one.name for one in found] for name, found in tables.items()}
    for table in sorted(needed.keys() - database.capture.covered(con, needed), key=str):
        raise OperationalError("the snapshot is not used", why=f"changes of table {table} may have been missed")
    for name, found in tables.items():
        database.engine.create_table(name, found, retain=False)


def drafted(database: Database, view: StoredView, described: Described) -> Draft:
    """A view to be filled that a snapshot describes. The engine has the tables and views that it reads."""
    by_scan = {entry.scan: entry for entry in database.views.values()}
    for scan in described["sources"].values():
        if scan not in by_scan:
            raise OperationalError("the snapshot is not used", why=f"it lacks a view that {shown(view.name)} reads")
    sources = {key: by_scan[scan] for key, scan in described["sources"].items()}
    fed = {key: sources[key] for key in described["fed"]}
    parts = [_part(*one) for one in zip(described["nodes"], described["parts"], strict=True)]
    for source in fed.values():
        database.engine.expose(source.maintained.name)
    return Draft(view, KeptReads(set(described["tables"]), sources, fed), parts, described["copies"])


def _described(node: Node, feeds: str | None) -> dict[str, Any]:
    if not isinstance(node, TreeNode):
        return {"rows": written(getattr(node, "rows", None))}
    view = node.view
    planned = written((view.definition, view.plan))
    return {"planned": planned, "feeds": feeds, "stateless": view.stateless, "epsilon": view.epsilon}


def _part(name: str, described: Described) -> Part | ComputedPart:
    if "rows" in described:
        return ComputedPart(name, read(described["rows"]))
    definition, plan = read(described["planned"])
    return Part(name, definition, plan, described["feeds"], described["stateless"], described["epsilon"])

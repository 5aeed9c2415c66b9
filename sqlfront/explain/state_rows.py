"""SHOW STATE: what each view keeps in memory, node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlfront.database.names import shown
from sqlfront.explain.heavy import heavy_tables
from sqlfront.maintenance.tree.view_tables import label

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry


STATE = {
    "view": "string", "node": "string", "kind": "string", "rows": "int64", "entries": "int64", "bytes": "int64",
    "load": "float64", "longest_probe": "int64", "shared": "bool_",
}  # fmt: skip
"""The columns of SHOW STATE and View.state, with their Arrow types. `entries` counts groups too."""


def state_rows(database: Database, entries: Iterable[ViewEntry]) -> list[tuple[Any, ...]]:
    """One row per stored node, with the columns of STATE.

    Under the engine's lock: dictionaries are swept, so that only values that are in use count.
    """
    for dictionary in database.engine.dictionaries:
        dictionary.sweep()
    rows: list[tuple[Any, ...]] = []
    for entry in entries:
        parts = database.engine.parts(entry.maintained)
        readers = Counter(id(source.store) for part in parts for source in part.sources.values())
        for view in parts:
            values = f"values of {view.distinct_set.label}" if view.distinct_set is not None else None
            of = f" for {values}" if values else ""
            of += f" in block {view.name.rpartition('/')[2]}" if view.name != entry.maintained.name else ""
            for atom, source in view.sources.items():
                shared = len(source.store.users) > 1 or readers[id(source.store)] > 1
                kind = "passed on" if source.store.stateless else "leaf"
                rows.append((shown(entry.name), atom + of, kind, *source.store.table.figures(), shared))
            for node in view.tree.stored_inner():
                if node.table is not None:
                    kind = "view" if node.full else "message"
                    name = label(view.definition, node.node) + of
                    rows.append((shown(entry.name), name, kind, *node.table.figures(), False))
            if view.tree.projection is not None:
                node_name, kind = "projection" + of, "projection"
                if values:
                    node_name, kind = of.removeprefix(" for "), "values"
                rows.append((shown(entry.name), node_name, kind, *view.tree.projection.figures(), False))
            if view.tuple_count is not None:
                rows += [
                    (shown(entry.name), f"number of rows, {table.name}{of}", "tuple_count", *table.figures(), False)
                    for table in view.tuple_count.tables()
                ]
            for index in (tree for order in view.ranked.values() for tree in order.trees()):
                for ranked, table in zip(index.nodes, index.tables(), strict=True):
                    name = f"{ranked.node.atom or label(view.definition, ranked.node)} by {index.order.label}{of}"
                    rows.append((shown(entry.name), name, "ranked", *table.figures(), False))
            if view.balance is not None:
                kept = heavy_tables(view.balance.part_trees)
                rows += [(shown(entry.name), node + of, kind, *table.figures(), False) for node, kind, table in kept]
        for groups in database.engine.computed_groups(entry.maintained):
            block = f"block {groups.name.rpartition('/')[2]}"
            for what, store in ((f"rows of {block}", groups.kept.store), (block, groups.own.store)):
                rows.append((shown(entry.name), what, "groups", *store.table.figures(), len(store.users) > 1))
        waiting, size = database.engine.deferred.figures(entry.maintained.name)
        if waiting:
            rows.append((shown(entry.name), "changes that wait", "waiting", waiting, waiting, size, None, None, False))
    for relation in database.engine.relations.values():
        if relation.base is not None:
            rows.append((None, relation.name, "table", *relation.base.table.figures(), True))
    for name, dictionary in (
        ("varchar", database.engine.dictionaries.varchar),
        ("blob", database.engine.dictionaries.blob),
    ):
        if dictionary.live():
            rows.append(
                (None, name, "dictionary", dictionary.live(), dictionary.live(), dictionary.bytes(), None, None, True)
            )
    return rows

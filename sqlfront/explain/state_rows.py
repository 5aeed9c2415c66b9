"""SHOW STATE: what each view keeps in memory, node by node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlfront.database.names import shown
from sqlfront.planner.theory.wording import table_name

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry


STATE = {
    "view": "string", "node": "string", "kind": "string", "rows": "int64", "entries": "int64", "bytes": "int64",
    "load": "float64", "longest_probe": "int64", "shared": "bool_",
}  # fmt: skip
"""The columns of SHOW STATE and View.state, with their Arrow types. `entries` counts groups too. A `replan` takes no
memory: its node is when and why a view was planned anew."""


def state_rows(database: Database, entries: Iterable[ViewEntry]) -> list[tuple[Any, ...]]:
    """One row per stored node, with the columns of STATE.

    Under the engine's lock: dictionaries are swept, so that only values that are in use count.
    """
    for dictionary in database.engine.dictionaries:
        dictionary.sweep()
    rows: list[tuple[Any, ...]] = []
    for entry in entries:
        for node in database.engine.describe(entry.maintained):
            block = "" if node.name == entry.maintained.name or node.tree is None else f" in {table_name(node.name)}"
            rows += [
                (shown(entry.name), one.node + block, one.kind, *one.table.figures(), one.shared) for one in node.state
            ]
            rows += [(shown(entry.name), text + block, "replan", 0, 0, 0, None, None, False) for text in node.replans]
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
    if (kept := database.engine.kept).rows:
        name = f"changes since epoch {kept.oldest}"
        rows.append((None, name, "for readers", kept.rows, kept.rows, kept.bytes(), None, None, True))
    return rows

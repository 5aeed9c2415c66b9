"""SHOW STATE: what each view keeps in memory, node by node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlfront.database.names import shown
from sqlfront.planner.theory.wording import table_name
from sqlfront.storage.stores.spill import spilled_bytes

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry
    from sqlfront.storage.stores.table import Table


STATE = {
    "view": "string", "node": "string", "kind": "string", "rows": "int64", "entries": "int64", "bytes": "int64",
    "load": "float64", "longest_probe": "int64", "shared": "bool_", "spilled": "int64",
}  # fmt: skip
"""The columns of SHOW STATE and View.state, with their Arrow types. `entries` counts groups too, `spilled` the bytes in
files. A `replan` takes no memory: its node is when and why a view was planned anew."""


def state_rows(database: Database, entries: Iterable[ViewEntry]) -> list[tuple[Any, ...]]:
    """One row per stored node, with the columns of STATE. A store that is read several times is listed once, so the
    bytes add up to the memory of the state.

    Under the engine's lock: dictionaries are swept, so that only values that are in use, or known to memos, count.
    """
    engine, seen = database.engine, set[int]()
    for dictionary in engine.dictionaries:
        dictionary.sweep(all_unused=False)
    rows: list[tuple[Any, ...]] = []
    for entry in entries:
        for node in engine.describe(entry.maintained):
            block = "" if node.name == entry.maintained.name or node.tree is None else f" in {table_name(node.name)}"
            for one in node.state:
                if id(one.table) not in seen:
                    seen.add(id(one.table))
                    rows.append(_table(shown(entry.name), one.node + block, one.kind, one.table, one.shared))
            rows += [_plain(shown(entry.name), text + block, "replan", 0, 0) for text in node.replans]
        waiting, size = engine.deferred.figures(entry.maintained.name)
        if waiting:
            rows.append(_plain(shown(entry.name), "changes that wait", "waiting", waiting, size))
    for relation in engine.relations.values():
        if relation.base is not None:
            rows.append(_table(None, relation.name, "table", relation.base.table, True))
    for name, dictionary in (("varchar", engine.dictionaries.varchar), ("blob", engine.dictionaries.blob)):
        if held := dictionary.live():
            spilled = dictionary.spilled_bytes()
            rows.append(_plain(None, name, "dictionary", held, dictionary.bytes(), shared=True, spilled=spilled))
    if kept := engine.kept.rows:
        name = f"changes since epoch {engine.kept.oldest}"
        rows.append(_plain(None, name, "for readers", kept, engine.kept.bytes(), shared=True))
    return rows


def _table(view: str | None, node: str, kind: str, table: Table, shared: bool) -> tuple[Any, ...]:
    return view, node, kind, *table.figures(), shared, spilled_bytes(table)


def _plain(
    view: str | None, node: str, kind: str, rows: int, size: int, *, shared: bool = False, spilled: int = 0
) -> tuple[Any, ...]:
    return view, node, kind, rows, rows, size, None, None, shared, spilled

"""Views followed through changes: their rows against their queries, and the rows that a subscriber makes of a feed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from sqlfront import Connection
from sqlfront.database.recomputed import recomputed, sums_floats

Check = Callable[[], dict[str, list[tuple[Any, ...]]]]
"""Compares views with their queries, and gives the rows of each."""


def take(feed: Iterable[pa.RecordBatch], rows: Counter[tuple[Any, ...]]) -> None:
    """Add what a feed tells to the rows that it has told before."""
    for batch in feed:
        for *row, kind, _, _ in zip(*batch.to_pydict().values(), strict=True):
            rows[tuple(row)] += 1 if kind in ("insert", "update_postimage") else -1


def follow(con: Connection, steps: int, change: Callable[[], object], check: Check, undone: int = 4) -> Counter[str]:
    """Check views after each change, and within a transaction that is rolled back before every `undone`-th change; how
    often the rows of each view changed."""
    before, changed = check(), Counter[str]()
    for step in range(1, steps + 1):
        if step % undone == 0:
            con.execute("BEGIN")
            change()
            check()
            con.execute("ROLLBACK")
        change()
        now = check()
        changed.update(name for name, rows in now.items() if rows != before[name])
        before = now
    return changed


def is_query(con: Connection, name: str = "v") -> bool:
    """Whether a view has the rows that DuckDB computes for its query. CHECK compares floating sums, whose order
    matters."""
    database = con.session.database
    entry = database.views["main", name.casefold()]
    if sums_floats(entry.definition):
        return con.execute(f"CHECK MATERIALIZED VIEW {entry.name}").fetchall() == []
    texts = f"FROM {entry.name}", recomputed(database, entry)
    found, wanted = (Counter(map(repr, con.execute(text).fetchall())) for text in texts)
    return found == wanted


def empty_and_drop(con: Connection, names: Iterable[str], tables: Iterable[str], check: Check) -> None:
    """Views over empty tables are right, and leave nothing in the engine when they are dropped."""
    assert all(is_query(con, name) for name in names)
    for table in tables:
        con.execute(f"DELETE FROM {table}")
    check()
    for name in names:
        con.execute(f"DROP MATERIALIZED VIEW {name}")
    engine = con.session.database.engine
    assert not engine.nodes
    assert not engine.relations

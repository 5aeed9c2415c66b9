"""Queries that are asked again and again, prepared on each connection that asks one twice.

Planning takes most of a small query's time. To prepare one takes as long as to ask it.

DuckDB plans a prepared query anew when the catalog has changed. One over tables with triggers it plans each time.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

_MOST = 100  # Queries that a connection remembers; the oldest makes room.
_numbers = count()
_names: WeakKeyDictionary[Any, dict[str, str | None]] = WeakKeyDictionary()


def ask(con: Any, query: str) -> list[Any]:
    """The rows of a query without parameters."""
    names = _names.setdefault(con, {})
    if query not in names:
        if len(names) == _MOST and (oldest := names.pop(next(iter(names)))) is not None:
            con.execute(f"DEALLOCATE {oldest}")
        names[query] = None
        return list(con.execute(query).fetchall())
    name = names[query]
    if name is None:
        name = f"__sqlfront_query_{next(_numbers)}"
        con.execute(f"PREPARE {name} AS {query}")
        names[query] = name
    rows: list[Any] = con.execute(f"EXECUTE {name}").fetchall()
    return rows

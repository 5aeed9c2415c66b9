"""Queries that are asked again and again, prepared once on each connection: planning takes most of a small one's time.

DuckDB plans a prepared query anew when the catalog has changed. One over tables with triggers it plans each time.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

_MOST = 100  # Queries that a connection keeps prepared; the oldest makes room.
_numbers = count()
_names: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()


def ask(con: Any, query: str) -> list[Any]:
    """The rows of a query without parameters."""
    names = _names.setdefault(con, {})
    name = names.get(query)
    if name is None:
        if len(names) == _MOST:
            con.execute(f"DEALLOCATE {names.pop(next(iter(names)))}")
        name = f"__sqlfront_query_{next(_numbers)}"
        con.execute(f"PREPARE {name} AS {query}")
        names[query] = name
    rows: list[Any] = con.execute(f"EXECUTE {name}").fetchall()
    return rows

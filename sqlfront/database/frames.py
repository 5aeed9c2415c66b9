"""DuckDB calls as if the user had made them: its replacement scans look at the Python frame of the caller.

`SELECT * FROM df` finds a DataFrame among the variables of the frame that calls DuckDB. That frame would be one
of ours, with variables of its own; so the call is made from a frame that has the user's.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from sqlfront.sql.recognise import words
from sqlfront.storage.errors import Error

_BETWEEN = ("sqlfront", "contextlib")  # Whose frames can lie between the user's and DuckDB's.
_CALL = compile("__sqlfront_call()", "<sqlfront>", "eval")
_READ: ContextVar[Mapping[str, Any] | None] = ContextVar("relations that have been read", default=None)


def as_user(call: Callable[[], Any]) -> Any:
    """`call()`, a function of DuckDB's without a frame of its own, from the user's frame. O(variables there)."""
    module, variables = _namespaces()
    variables = {**variables, **(_READ.get() or {}), "__sqlfront_call": call}
    return eval(_CALL, module, variables)  # The code is the constant above.


@contextmanager
def relations_read(con: Any, text: str) -> Iterator[None]:
    """Read whole, before a statement takes the lock, the relations of ours among the user's variables that it scans.

    A thread of DuckDB's would open them, and wait for the lock that the statement's own thread holds. Free before the
    first relation is made, then O(variables). A table or view of the name goes first, as in DuckDB.
    """
    loaded = sys.modules.get("sqlfront.relation")
    found = {} if loaded is None else _named(loaded.Relation, text)
    if found:
        scanned = _scanned(con, text)
        taken = {name.casefold() for (name,) in con.execute(_TABLES, [list(map(str.casefold, found))]).fetchall()}
        found = {name: one for name, one in found.items() if name.casefold() in scanned - taken}
    tables = dict[str, Any]()
    for name, one in found.items():
        with suppress(Error):  # DuckDB raises it again if it does scan the relation.
            tables[name] = one.to_arrow_table()
    token = _READ.set(tables)
    try:
        yield
    finally:
        _READ.reset(token)


def _scanned(con: Any, text: str) -> Set[str]:
    """The tables that a statement names, in lower case; all its words where DuckDB does not tell."""
    import duckdb

    with con.cursor() as other:  # An error would abort the transaction of `con`.
        try:
            return {name.casefold() for name in other.get_table_names(text)}
        except duckdb.Error:
            return words(text)


_TABLES = """
    SELECT table_name FROM duckdb_tables() WHERE list_contains($1, lower(table_name))
    UNION ALL SELECT view_name FROM duckdb_views() WHERE list_contains($1, lower(view_name))"""


def _named(kind: type, text: str) -> dict[str, Any]:
    """The variables of the user's frame of a kind whose names are in a text."""
    module, variables = _namespaces()
    found = {name: value for names in (module, variables) for name, value in names.items() if type(value) is kind}
    return {name: value for name, value in found.items() if name.casefold() in words(text)} if found else {}


def warn_user(message: str, category: type[Warning]) -> None:
    """`warnings.warn`, at the user's line."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def user_object(name: str) -> Any:
    """The object that a variable of the user's frame names, or None."""
    module, variables = _namespaces()
    return variables.get(name, module.get(name))


def _namespaces() -> tuple[dict[str, Any], Mapping[str, Any]]:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return frame.f_globals, frame.f_locals

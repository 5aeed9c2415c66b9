"""The functions of a connection: which aggregate, which change from query to query, which are macros of the user."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

PYTHON_FUNCTIONS: set[str] = set()
"""The names, in lower case, of the functions that this process has made of Python functions."""
# Written like columns, without parentheses: the clock, or the session, decides their values.
SESSION_WORDS = frozenset(
    (
        *("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "current_catalog"),
        *("current_role", "current_schema", "current_user", "session_user", "user"),
    )
)


@dataclass(frozen=True)
class Kind:
    """What a function of a name is; a macro of DuckDB's own is what it calls.

    `unfolds`: it makes several rows of one. `written_out`: a macro of DuckDB's own with an aggregate or unnest inside.
    """

    aggregate: bool = False
    unstable: bool = False
    user_macro: bool = False
    unfolds: bool = False
    written_out: bool = False


class Functions:
    """The function catalog of a connection: kinds and stability by name.

    With `macros` there are macros of the user, which hide DuckDB's functions of the same name.
    """

    def __init__(self, con: Any, macros: bool = True) -> None:
        self._con = con
        rows = con.execute(f"{_FACTS} GROUP BY 1 HAVING bool_or({_USER_MACRO})").fetchall() if macros else []
        self._known = {row[0]: Kind(*row[1:]) for row in rows}
        self.has_macros = bool(rows)

    def is_aggregate(self, name: str) -> bool:
        return self._kind(name).aggregate

    def is_unstable(self, name: str, arguments: int) -> bool:
        """Whether chance, the clock or the session decides the value."""
        return self._kind(name).unstable or (name.lower(), arguments) in _UNSTABLE_TOO

    def is_user_macro(self, name: str) -> bool:
        return self._kind(name).user_macro

    def unfolds(self, name: str) -> bool:
        return self._kind(name).unfolds

    @property
    def written_out(self) -> set[str]:
        """The names of DuckDB's own macros that are no functions of a row: a view has their texts."""
        return {name for name, kind in _built_in(self._con).items() if kind.written_out}

    def _kind(self, name: str) -> Kind:
        """A name's kind; DuckDB's own names are read once per process."""
        lowered = name.lower()
        known = self._known.get(lowered) or _built_in(self._con).get(lowered)
        if known is None:
            rows = self._con.execute(_FACTS + " WHERE lower(function_name) = ? GROUP BY 1", [lowered]).fetchall()
            known = self._known[lowered] = Kind(*rows[0][1:]) if rows else Kind()
        return known


# DuckDB calls a function of instants, too, consistent within a query alone: it depends on TimeZone and Calendar.
# A function that reads the clock or the session takes nothing, or names and flags.
_UNSTABLE = """coalesce(stability = 'VOLATILE' OR stability = 'CONSISTENT_WITHIN_QUERY' AND
                    len(list_filter(parameter_types, lambda type: type NOT IN ('VARCHAR', 'BOOLEAN'))) = 0, false)"""
_USER_MACRO = "function_type IN ('macro', 'table_macro') AND NOT internal"
_FACTS = f"""
    SELECT lower(function_name), bool_or(function_type = 'aggregate'),
           bool_or({_UNSTABLE}),
           bool_or({_USER_MACRO})
    FROM duckdb_functions()"""


# An error has no value that could change.
_STABLE_TOO = ("error",)
# The age of an instant, until now.
_UNSTABLE_TOO = (("age", 1),)
_UNFOLD = ("unnest", "unlist")
# What the bound plan calls operations that are no functions of the catalog.
_OPERATIONS = ("__cast", "cast", "try_cast", "coalesce", "=", "<>", "!=", "<", ">", "<=", ">=")

# The words outside strings; a string gives an empty one.
_WORDS = re.compile(r"'(?:[^']|'')*'|([^\W\d][\w$]*)")


_BUILT_IN: dict[str, Kind] = {}


def _built_in(con: Any) -> dict[str, Kind]:
    """DuckDB's own functions, read once per process. One scan: each takes 15 ms."""
    if not _BUILT_IN:
        _BUILT_IN.update(_read_built_in(con))
    return _BUILT_IN


def _read_built_in(con: Any) -> dict[str, Kind]:
    rows = con.execute(
        f"SELECT lower(function_name), function_type, {_UNSTABLE}, macro_definition "
        "FROM duckdb_functions() WHERE internal"
    ).fetchall()
    found = dict.fromkeys(_OPERATIONS, Kind())
    for name, kind, changing, _ in rows:
        before = found.get(name, Kind())
        found[name] = Kind(
            before.aggregate or kind == "aggregate",
            before.unstable or (changing and name not in _STABLE_TOO),
            unfolds=name in _UNFOLD,
        )
    calls = {name: _called(definition, found) for name, kind, _, definition in rows if kind == "macro"}
    while changed := {
        name: new for name, called in calls.items() if (new := _as_called(found[name], called, found)) != found[name]
    }:
        found |= changed  # A macro may call another.
    return found


def _called(definition: str, known: Collection[str]) -> list[str]:
    """The functions and the session's words in a macro's text."""
    words = (word.lower() for word in _WORDS.findall(definition))
    return [word for word in words if word in known or word in SESSION_WORDS]


def _as_called(own: Kind, names: Sequence[str], known: Mapping[str, Kind]) -> Kind:
    """What a macro of DuckDB's own is by the functions that it calls."""
    called = [known[name] for name in names if name in known]
    aggregate, unfolds = any(one.aggregate for one in called), any(one.unfolds for one in called)
    return replace(
        own,
        aggregate=own.aggregate or aggregate,
        unstable=own.unstable or any(one.unstable for one in called) or any(name in SESSION_WORDS for name in names),
        unfolds=unfolds,
        written_out=aggregate or unfolds,
    )

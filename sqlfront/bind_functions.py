"""Which functions a view may use: those whose value depends on their arguments only."""

from __future__ import annotations

import functools
from typing import Any

from sqlfront.bind_refusals import refusal
from sqlfront.bind_types import Typing
from sqlfront.parse_tree import SourceText, Span, Tree, span, walk

_ZONED = "TIMESTAMP WITH TIME ZONE"
_ZONED_TIME = "TIME WITH TIME ZONE"
# Functions of an instant that do not ask which time zone the session is in.
_ZONE_FREE = frozenset(
    "epoch epoch_ms epoch_us epoch_ns to_timestamp isfinite isinf coalesce least greatest hash "
    "= <> != < > <= >= make_timestamptz count sum avg timezone __cast date_diff_us".split()
)
_INSTANTS = (_ZONED,)


class Functions:
    """The function catalog of a connection: kinds and stability by name."""

    def __init__(self, con: Any) -> None:
        self._con = con
        self._asked: dict[str, tuple[bool, bool, bool]] = {}

    def is_aggregate(self, name: str) -> bool:
        return self._facts(name)[0]

    def is_unstable(self, name: str) -> bool:
        """VOLATILE or CONSISTENT_WITHIN_QUERY in DuckDB's own words."""
        return self._facts(name)[1]

    def is_user_macro(self, name: str) -> bool:
        return self._facts(name)[2]

    def _facts(self, name: str) -> tuple[bool, bool, bool]:
        """(aggregate, unstable, macro of the user); built-in names are read once per process."""
        built_in = _built_in(self._con).get(name.lower())
        if built_in is not None:
            return built_in
        if name.lower() not in self._asked:
            rows = self._con.execute(_FACTS + " WHERE lower(function_name) = ? GROUP BY 1", [name.lower()]).fetchall()
            self._asked[name.lower()] = tuple(map(bool, rows[0][1:])) if rows else (False, False, False)  # type: ignore[assignment]
        return self._asked[name.lower()]


_FACTS = """
    SELECT lower(function_name), bool_or(function_type = 'aggregate'),
           coalesce(bool_or(stability IN ('VOLATILE', 'CONSISTENT_WITHIN_QUERY')), false),
           bool_or(function_type = 'macro' AND NOT internal)
    FROM duckdb_functions()"""


@functools.cache
def _built_in_names() -> dict[str, tuple[bool, bool, bool]]:
    return {}


def _built_in(con: Any) -> dict[str, tuple[bool, bool, bool]]:
    """Functions of DuckDB itself, from a fresh database so that no function of the user's is among them."""
    known = _built_in_names()
    if not known:
        import duckdb

        with duckdb.connect(":memory:", config={"threads": 1}) as fresh:
            rows = fresh.execute(_FACTS + " GROUP BY 1").fetchall()
        known |= {row[0]: (bool(row[1]), bool(row[2]), bool(row[3])) for row in rows}
    return known


def check_functions(tree: Tree, typing: Typing, functions: Functions, source: SourceText) -> None:
    """Refuse an expression whose value the session or chance decides. Raises NotSupportedError."""
    for node in walk(tree):
        if node["class"] == "FUNCTION" and functions.is_user_macro(node["function_name"]):
            why = "the macro may be replaced, and the view would keep its old meaning"
            hint = "write the macro's expression"
            raise refusal(f"The macro {node['function_name']}", source, span(node), why, hint)
    for bound in typing.bound(tree):
        if functions.is_unstable(bound.function):
            what = f"{bound.function}()"
            why = "its value changes from query to query, so a stored result cannot stay equal to the query"
            hint = "store the value in a column when the row is written, or filter when you read the view"
            raise refusal(what, source, _place(tree, bound.function), why, hint)
        if _asks_time_zone(bound.function, bound.type, bound.argument_types):
            what = "A cast" if bound.function == "__cast" else f"{bound.function} on TIMESTAMP WITH TIME ZONE"
            why = "the result depends on the session's TimeZone setting"
            hint = "use epoch_us(x), or keep a TIMESTAMP column in UTC"
            raise refusal(what, source, _place(tree, bound.function), why, hint)


def _asks_time_zone(function: str, result: str, arguments: tuple[str, ...]) -> bool:
    """Whether the session's TimeZone decides: between instants and civil times, and arithmetic on instants."""
    zoned = [kind in _INSTANTS for kind in arguments]
    if function == "__cast":
        other = {result, *arguments} - {_ZONED, "NULL", '"NULL"', ""}
        return (result == _ZONED or any(zoned)) and bool(other)
    if function == "timezone":
        return len(arguments) < 2
    if function in _ZONE_FREE:
        return False
    return any(zoned) or result == _ZONED


def _place(tree: Tree, function: str) -> Span | None:
    """The call of that name if it is written so, else the whole expression."""
    for node in walk(tree):
        names = (node.get("function_name", "").lower(), *map(str.lower, node.get("column_names", [])))
        if function.lower() in names:
            return span(node)
    if function == "__cast":
        return next((place for node in walk(tree) if node["class"] == "CAST" and (place := span(node))), span(tree))
    return span(tree)

"""Which functions a view may use: those whose value depends on their arguments only."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from sqlfront.bind_refusals import refusal
from sqlfront.bind_types import BoundNode, Typing
from sqlfront.parse_tree import SourceText, Span, Tree, span, walk

_ZONED = "TIMESTAMP WITH TIME ZONE"
# Functions of an instant that do not ask which time zone the session is in.
_ZONE_FREE = frozenset(
    (
        *("epoch", "epoch_ms", "epoch_us", "epoch_ns", "to_timestamp", "make_timestamptz", "timezone", "hash"),
        *("isfinite", "isinf", "coalesce", "least", "greatest", "count", "=", "<>", "!=", "<", ">", "<=", ">="),
    )
)


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
        """(aggregate, unstable, macro of the user); DuckDB's own names are read once per process."""
        lowered = name.lower()
        known = self._asked.get(lowered) or _built_in().get(lowered)
        if known is None:
            rows = self._con.execute(_FACTS + " WHERE lower(function_name) = ? GROUP BY 1", [lowered]).fetchall()
            known = (bool(rows[0][1]), bool(rows[0][2]), bool(rows[0][3])) if rows else (False, False, False)
            self._asked[lowered] = known
        return known


_FACTS = """
    SELECT lower(function_name), bool_or(function_type = 'aggregate'),
           coalesce(bool_or(stability IN ('VOLATILE', 'CONSISTENT_WITHIN_QUERY')), false),
           bool_or(function_type = 'macro' AND NOT internal)
    FROM duckdb_functions()"""


# What the bound plan calls operations that are no functions of the catalog.
_OPERATIONS = ("__cast", "=", "<>", "!=", "<", ">", "<=", ">=")


@functools.cache
def _built_in() -> dict[str, tuple[bool, bool, bool]]:
    """DuckDB's functions, from a fresh database: none of the user's are among them."""
    import duckdb

    with duckdb.connect(":memory:", config={"threads": 1}) as fresh:
        rows = fresh.execute(_FACTS + " GROUP BY 1").fetchall()
    found = {row[0]: (bool(row[1]), bool(row[2]), bool(row[3])) for row in rows}
    return dict.fromkeys(_OPERATIONS, (False, False, False)) | found


def check_functions(trees: Sequence[Tree], typing: Typing, functions: Functions, source: SourceText) -> None:
    """Refuse expressions whose value the session or chance decides. Raises NotSupportedError."""
    for node in (node for tree in trees for node in walk(tree)):
        if node["class"] == "FUNCTION" and functions.is_user_macro(node["function_name"]):
            why = "the macro may be replaced, and the view would keep its old meaning"
            hint = "write the macro's expression"
            raise refusal(f"The macro {node['function_name']}", source, span(node), why, hint)
    if any(_objection(bound, functions) for bound in typing.bound(trees)):
        for tree in trees:
            _refuse(tree, typing.bound([tree]), functions, source)


def _refuse(tree: Tree, nodes: Sequence[BoundNode], functions: Functions, source: SourceText) -> None:
    """Raise for the first objectionable node of the expression."""
    for bound in nodes:
        objection = _objection(bound, functions)
        if objection == "rows":
            why = "one row becomes many, which the counts of a join do not show"
            hint = "store the elements as rows of a table and join it"
            raise refusal("unnest", source, _place(tree, bound.function), why, hint)
        if objection == "unstable":
            why = "its value changes from query to query, so a stored result cannot stay equal to the query"
            hint = "store the value in a column when the row is written, or filter when you read the view"
            raise refusal(f"{bound.function}()", source, _place(tree, bound.function), why, hint)
        if objection:
            kinds = f"{bound.argument_types[0]} to {bound.type}" if bound.argument_types else bound.type
            what = f"A cast from {kinds}" if bound.function == "__cast" else f"{bound.function} on {_ZONED}"
            why = "the result depends on the session's TimeZone setting"
            hint = "use epoch_us(x), or keep a TIMESTAMP column in UTC"
            raise refusal(what, source, _place(tree, bound.function), why, hint)


def _objection(bound: BoundNode, functions: Functions) -> str:
    if not bound.is_call:
        return ""
    if bound.function == "unnest":
        return "rows"
    if functions.is_unstable(bound.function):
        return "unstable"
    return "zone" if _asks_time_zone(bound.function, bound.type, bound.argument_types) else ""


def _asks_time_zone(function: str, result: str, arguments: tuple[str, ...]) -> bool:
    """Whether the session's TimeZone decides: between instants and civil times, and arithmetic on instants."""
    zoned = [kind == _ZONED for kind in arguments]
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

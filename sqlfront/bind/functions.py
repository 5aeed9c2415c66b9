"""Which functions a view may use: those whose value depends on their arguments only.

Functions that are refused by name for another reason are in refusals.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlfront.bind.refusals import SESSION_WORDS, many_rows, refusal, unstable
from sqlfront.bind.result_types import BoundNode, Typing, bound_nodes
from sqlfront.sql.parse_tree import SourceText, Span, Tree, arguments, ask_parser, quoted, render_select, span, walk
from sqlfront.sql.tokens import tokenize

_ZONED = "TIMESTAMP WITH TIME ZONE"
# An instant, or a nested type that holds one.
_INSTANT = re.compile(r"TIMESTAMP(_NS)? WITH TIME ZONE|TIMESTAMPTZ")
# Functions of an instant that do not ask which time zone the session is in.
_ZONE_FREE = frozenset(
    (
        *("epoch", "epoch_ms", "epoch_us", "epoch_ns", "to_timestamp", "timezone", "hash"),
        *("isfinite", "isinf", "coalesce", "least", "greatest", "count", "=", "<>", "!=", "<", ">", "<=", ">="),
        *("struct_pack", "row", "union_value", "len", "length", "array_length", "cardinality", "map_keys"),
    )
)


class Functions:
    """The function catalog of a connection: kinds and stability by name.

    With `macros` there are macros of the user, which hide DuckDB's functions of the same name.
    """

    def __init__(self, con: Any, macros: bool = True) -> None:
        self._con = con
        rows = con.execute(f"{_FACTS} GROUP BY 1 HAVING bool_or({_USER_MACRO})").fetchall() if macros else []
        self._known = {row[0]: _flags(row) for row in rows}

    def is_aggregate(self, name: str) -> bool:
        return self._facts(name)[0]

    def is_unstable(self, name: str, arguments: int) -> bool:
        """VOLATILE or CONSISTENT_WITHIN_QUERY in DuckDB's own words, or one of those that it forgets."""
        return self._facts(name)[1] or (name.lower(), arguments) in _UNSTABLE_TOO

    def is_user_macro(self, name: str) -> bool:
        return self._facts(name)[2]

    def _facts(self, name: str) -> tuple[bool, bool, bool]:
        """(aggregate, unstable, macro of the user); DuckDB's own names are read once per process."""
        lowered = name.lower()
        known = self._known.get(lowered) or _built_in().get(lowered)
        if known is None:
            rows = self._con.execute(_FACTS + " WHERE lower(function_name) = ? GROUP BY 1", [lowered]).fetchall()
            known = self._known[lowered] = _flags(rows[0]) if rows else (False, False, False)
        return known


def _flags(row: tuple[Any, ...]) -> tuple[bool, bool, bool]:
    return bool(row[1]), bool(row[2]), bool(row[3])


_UNSTABLE = ("VOLATILE", "CONSISTENT_WITHIN_QUERY")
_USER_MACRO = "function_type = 'macro' AND NOT internal"
_FACTS = f"""
    SELECT lower(function_name), bool_or(function_type = 'aggregate'),
           coalesce(bool_or(stability IN {_UNSTABLE}), false),
           bool_or({_USER_MACRO})
    FROM duckdb_functions()"""


# They read the clock, and DuckDB lists them as CONSISTENT.
_UNSTABLE_TOO = (("age", 1), ("current_localtime", 0), ("current_localtimestamp", 0))
# What the bound plan calls operations that are no functions of the catalog.
_OPERATIONS = ("__cast", "=", "<>", "!=", "<", ">", "<=", ">=")


@functools.cache
def _built_in() -> dict[str, tuple[bool, bool, bool]]:
    """DuckDB's functions, from a database without any of the user's. One scan: each takes 15 ms."""
    rows = ask_parser(
        "SELECT lower(function_name), function_type, coalesce(stability IN (?, ?), false), macro_definition "
        "FROM duckdb_functions()",
        _UNSTABLE,
    )
    found = dict.fromkeys(_OPERATIONS, (False, False, False))
    for name, kind, changing, _ in rows:
        before = found.get(name, (False, False))
        found[name] = before[0] or kind == "aggregate", before[1] or changing, False
    for name, kind, _, definition in rows:
        if kind == "macro":
            words = [token.name.lower() for token in tokenize(definition) if token.is_name]
            if any(word in SESSION_WORDS or found.get(word, (False, False))[1] for word in words):
                found[name] = found[name][0], True, False
    return found


def check_functions(
    trees: Sequence[Tree], outputs: Sequence[Tree], typing: Typing, functions: Functions, source: SourceText
) -> None:
    """Refuse expressions whose value the session or chance decides. Raises NotSupportedError.

    `trees` are computed from rows, `outputs` perhaps from their aggregates. DuckDB folds a call of constants while it
    binds, so the calls are looked for in the query as written as well as in its bound plan, which shows what
    macros and implicit casts are.
    """
    for node in (node for tree in (*trees, *outputs) for node in walk(tree)):
        if node["class"] == "FUNCTION":
            name = node["function_name"]
            if functions.is_user_macro(name):
                why = "the macro may be replaced, and the view would keep its old meaning"
                raise refusal(f"The macro {name}", source, span(node), why, "write the macro's expression")
            if functions.is_unstable(name, len(arguments(node))):
                raise unstable(f"{name}()", source, span(node))
        _check_constant(node, typing, functions, source)
    if any(_objection(bound, functions) for bound in typing.bound(trees)):
        for tree in trees:
            _refuse(tree, typing.bound([tree]), functions, source)


def check_rows(trees: Sequence[Tree], typing: Typing, source: SourceText) -> None:
    """Refuse a column of an inner block that multiplies the block's rows, though nothing may read the column."""
    calls = [tree for tree in trees if any(node["class"] == "FUNCTION" for node in walk(tree))]
    if any(bound.function == "unnest" for bound in typing.bound(calls)):
        for tree in calls:
            if any(bound.function == "unnest" for bound in typing.bound([tree])):
                raise many_rows(source, span(tree))


def check_projection(
    trees: Sequence[Tree], types: Mapping[str, str], con: Any, functions: Functions, source: SourceText
) -> None:
    """The same for what is computed from groups and aggregates: columns of the given types."""
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in types.items()) or "1 AS nothing"

    def bound(some: Sequence[Tree]) -> list[BoundNode]:
        return bound_nodes(con, f"{render_select(some)} FROM (SELECT {nulls})")

    if trees and any(_objection(node, functions) for node in bound(trees)):
        for tree in trees:
            _refuse(tree, bound([tree]), functions, source)


def _check_constant(node: Tree, typing: Typing, functions: Functions, source: SourceText) -> None:
    """A cast or call of constants is judged by the types alone."""
    if node["class"] not in ("FUNCTION", "CAST") or any(_depends(part, functions) for part in walk(node)):
        return
    parts = [typing.type_of(part) for part in ([node["child"]] if node["class"] == "CAST" else arguments(node))]
    bound = BoundNode(str(node.get("function_name", "__cast")).lower(), typing.type_of(node), tuple(parts))
    _refuse(node, [bound], functions, source)


def _depends(node: Tree, functions: Functions) -> bool:
    """Whether the node is no constant: a column, a lambda or its parameter, an aggregate."""
    if node["class"] in ("COLUMN_REF", "LAMBDA"):
        return True
    return node["class"] == "FUNCTION" and functions.is_aggregate(node["function_name"])


def _refuse(tree: Tree, nodes: Sequence[BoundNode], functions: Functions, source: SourceText) -> None:
    """Raise for the first objectionable node of the expression."""
    for bound in nodes:
        objection = _objection(bound, functions)
        if objection == "rows":
            raise many_rows(source, _place(tree, bound.function))
        if objection == "unstable":
            raise unstable(f"{bound.function}()", source, _place(tree, bound.function))
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
    if functions.is_unstable(bound.function, len(bound.argument_types)):
        return "unstable"
    return "zone" if _asks_time_zone(bound.function, bound.type, bound.argument_types) else ""


def _asks_time_zone(function: str, result: str, arguments: tuple[str, ...]) -> bool:
    """Whether the session's TimeZone decides: between instants and civil times, and arithmetic on instants."""
    zoned = any(map(_INSTANT.search, (*arguments, result)))
    if function == "__cast":
        return zoned and not set(arguments) <= {"NULL", '"NULL"', ""} and {result, *arguments} != {_ZONED}
    if function == "timezone":
        return len(arguments) < 2
    if function == "make_timestamptz":
        return len(arguments) > 1
    return zoned and function not in _ZONE_FREE


def _place(tree: Tree, function: str) -> Span | None:
    """The call of that name if it is written so, else the whole expression."""
    for node in walk(tree):
        names = (node.get("function_name", "").lower(), *map(str.lower, node.get("column_names", [])))
        if function.lower() in names:
            return span(node)
    if function == "__cast":
        return next((place for node in walk(tree) if node["class"] == "CAST" and (place := span(node))), span(tree))
    return span(tree)

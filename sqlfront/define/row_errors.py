"""The option `on_error = 'null'`: an expression that fails on a row is NULL there, by TRY(...) around it.

TRY is put into the text of the query before the query is bound. So the view, CHECK and the stored query have it at the
same places. Each expression that can fail is put into one TRY as a whole, as far as conditions, aggregates, windows and
subqueries leave it whole: DuckDB takes none of them inside TRY, and NULL for a whole condition would hide an equality.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from typing import Any

from sqlglot import exp

from sqlfront.binding.function_catalog import Functions
from sqlfront.sql import trees
from sqlfront.sql.dialect import printed
from sqlfront.sql.guard import query_columns
from sqlfront.sql.statements import CreateMaterializedView

_CONNECTIVES = (
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.Between, exp.In, exp.Exists, exp.Alias, exp.Ordered, exp.Paren),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
)
"""What cannot fail by itself, and is a condition or names a value: what is inside is looked at."""
_OPEN = (exp.Query, exp.Window, exp.Star, trees.Star, exp.Filter, exp.WithinGroup)
"""What TRY cannot have inside."""
_CERTAIN = frozenset(
    (
        *("coalesce", "ifnull", "nullif", "greatest", "least", "typeof", "isnan", "isfinite", "isinf", "hash", "md5"),
        *("lower", "upper", "length", "strlen", "concat", "concat_ws", "trim", "ltrim", "rtrim", "replace", "contains"),
        *("starts_with", "ends_with", "prefix", "suffix", "list_value", "struct_pack", "row", "struct_extract", "try"),
        *("year", "quarter", "month", "week", "day", "dayofweek", "isodow", "dayofyear", "hour", "minute", "second"),
    )
)
"""Functions that fail on no row."""
_TEXT = ("TEXT", "VARCHAR", "CHAR", "NVARCHAR")


def null_on_error(con: Any, statement: CreateMaterializedView, query: exp.Expr) -> CreateMaterializedView:
    """The statement with TRY around what can fail in its query. The view's columns are called as those of the query."""
    import duckdb

    text = with_try(statement.text, query, Functions(con))
    try:
        names = tuple(name for name, _ in query_columns(con, statement.query))
    except duckdb.Error:  # The binder says what is wrong, and where.
        names = ()
    columns = (*statement.columns, *names[len(statement.columns) :])
    return replace(statement, text=text, query=text[statement.query_start :], columns=columns)


def with_try(text: str, query: exp.Expr, functions: Functions) -> str:
    """The text in which each expression of a query that can fail stands in TRY(...)."""
    for start, end in sorted(_spans(query, functions), reverse=True):
        text = f"{text[:start]}TRY({text[start:end]}){text[end:]}"
    return text


def is_try(node: exp.Expr) -> bool:
    return isinstance(node, trees.Call) and node.name.lower() == "try"


def _spans(node: exp.Expr, functions: Functions, keys: Set[str] = frozenset()) -> Iterator[trees.Span]:
    """Where the expressions stand. `keys` are those of the SELECT's GROUP BY: an expression of keys is not split."""
    if is_try(node):
        return
    if isinstance(node, exp.Select):
        group = node.args.get("group")
        keys = frozenset(map(printed, group.find_all(exp.Condition)) if group is not None else ())
    span = trees.span(node)
    if span is not None and _is_whole(node, functions, keys) and any(map(_can_fail, node.walk(prune=is_try))):
        yield span
        return
    within = node.args.get("joins") or [] if isinstance(node, exp.Table) else node.iter_expressions()
    for child in within:  # Of a table function, the arguments are no row's.
        yield from _spans(child, functions, keys)


def _is_whole(node: exp.Expr, functions: Functions, keys: Set[str]) -> bool:
    """Whether an expression is one of a row, as a whole, and no condition."""
    if not isinstance(node, exp.Condition) or isinstance(node, (*_CONNECTIVES, *_OPEN)):
        return False
    if isinstance(node.parent, exp.Window) and node.arg_key == "this":
        return False
    inside = list(node.walk())
    if not any(isinstance(one, exp.Column) for one in inside):
        return False
    if any(isinstance(one, _OPEN) or _gathers(one, functions) for one in inside):
        return False
    return printed(node) in keys or not any(_can_fail(one) and printed(one) in keys for one in inside)


def _gathers(node: exp.Expr, functions: Functions) -> bool:
    """Whether a call makes one value of several rows, or several rows of one value; a user's macro may do so."""
    if not isinstance(node, trees.Call):
        return False
    name = node.name.lower()
    several = functions.is_aggregate(name) or functions.unfolds(name) or functions.is_user_macro(name)
    return several or name in ("grouping", "grouping_id")


def _can_fail(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast):
        return not isinstance(node, exp.TryCast) and node.to.sql().upper() not in _TEXT
    if isinstance(node, trees.Call):
        return node.name.lower() not in _CERTAIN
    return isinstance(node, (exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.Interval, trees.Factorial))

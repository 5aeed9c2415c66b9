"""What an SQL expression over a table's columns means, as DuckDB binds it: every cast explicit, constants folded."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from sqlfront.storage.codecs.casting import Settings, connect, under
from sqlfront.storage.sql_text import quote

_LAMBDA = "lambda_expr"
"""What a bound tree calls the body of a lambda. The body refers to parameters, and captured columns are such."""

_SPOTS = ("alias", "query_location", "query_location_length")
_lock = threading.Lock()
_state = {"declared": ""}

_OPERATORS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
    "COMPARE_IN": "IN",
    "CONJUNCTION_AND": "AND",
    "CONJUNCTION_OR": "OR",
    "OPERATOR_NOT": "NOT",
    "OPERATOR_IS_NULL": "IS NULL",
    "OPERATOR_IS_NOT_NULL": "IS NOT NULL",
    "OPERATOR_COALESCE": "COALESCE",
    "OPERATOR_CAST": "CAST",
}


@dataclass(frozen=True)
class Bound:
    """An expression of a DuckDB type ("" for those that are not told apart).

    `operation` is COLUMN (`value` is its number), CONSTANT (`value` as DuckDB stores it, None for NULL), CASE
    (children: condition, value, condition, value, ..., value), an operator, or the name of a built-in function. `tree`
    is all that DuckDB says; the index of a BOUND_REF in it is the number of a column.
    """

    operation: str
    type: str
    children: tuple[Bound, ...] = ()
    value: Any = None
    tree: Any = field(default=None, compare=False, repr=False)


def bind(columns: Mapping[str, str], expressions: Sequence[str], settings: Settings = ()) -> list[Bound | None]:
    """The expressions over columns (name: type) as DuckDB would evaluate them under settings; None for one that is not
    told. About 1 ms for all of them, and as much again for each if one of several is not told."""
    declared = ", ".join(f"{quote(name)} {type}" for name, type in columns.items())
    with _lock:
        found = _together(declared, expressions, settings)
        if found is None and len(expressions) > 1:
            return [one[0] if (one := _together(declared, [each], settings)) else None for each in expressions]
    return [*found] if found is not None else [None for _ in expressions]


def meaning(tree: Any) -> str:
    """What a bound tree says, but for names, places in the text and which columns it reads."""
    return json.dumps(_bare(tree), sort_keys=True)


def columns_read(tree: Any) -> set[int]:
    """The numbers of the columns that a bound tree reads; perhaps of others, too, where it has lambdas."""
    if isinstance(tree, dict):
        own = {tree["index"]} if tree.get("type") == "BOUND_REF" and tree["index"] >= 0 else set[int]()
        return own.union(*(columns_read(value) for name, value in tree.items() if name != _LAMBDA))
    return set[int]().union(*map(columns_read, tree)) if isinstance(tree, list) else set()


def _bare(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_bare(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    left_out: tuple[str, ...] = _SPOTS if "expression_class" in tree else ()
    if tree.get("type") == "BOUND_REF":
        left_out = (*left_out, "index")
    return {name: _bare(value) for name, value in tree.items() if name not in left_out}


def _together(declared: str, expressions: Sequence[str], settings: Settings) -> list[Bound] | None:
    """The expressions as DuckDB binds them in one SELECT list; None if one of them is not told."""
    if not expressions:
        return []
    listed = ", ".join(f"({expression})" for expression in expressions)
    question = "SELECT json_serialize_plan(?, optimize := true)"
    try:
        if _state["declared"] != declared:
            _state["declared"] = ""
            _connection().execute(f"CREATE OR REPLACE TABLE __columns ({declared})")
            _state["declared"] = declared
        answer = _cursor(settings).execute(question, [f"SELECT {listed} FROM __columns"]).fetchone()
        plan = json.loads(answer[0])  # type: ignore[index]
    except (duckdb.Error, ValueError):  # NaN is no JSON.
        return None
    if plan["error"] or len(plan["plans"]) != 1:
        return None
    projection = plan["plans"][0]
    scans = projection["children"]
    if projection["type"] != "LOGICAL_PROJECTION" or [scan["type"] for scan in scans] != ["LOGICAL_GET"]:
        return None
    places = [column["index"] for column in scans[0]["column_indexes"]]
    _name_columns(projection["expressions"], places)
    return [_bound(tree) for tree in projection["expressions"]]


def parsed(expression: str) -> Any:
    """The tree that DuckDB parses an expression to; None if it does not."""
    with _lock:
        answer = _connection().execute("SELECT json_serialize_sql(?)", [f"SELECT {expression}"]).fetchone()
    found = json.loads(answer[0])  # type: ignore[index]
    return None if found["error"] else found["statements"][0]["node"]["select_list"][0]


def deserialized(trees: Sequence[Any]) -> list[str]:
    """The SQL of trees that are `parsed`, or parts of such trees."""
    if not trees:
        return []
    with _lock:
        [empty] = _connection().execute("SELECT json_serialize_sql('SELECT 1')").fetchone()  # type: ignore[misc]
        statement = json.loads(empty)
        texts = []
        for tree in trees:
            statement["statements"][0]["node"]["select_list"] = [tree]
            texts.append(json.dumps(statement))
        answers = _connection().execute("SELECT json_deserialize_sql(unnest(?::JSON[]))", [texts]).fetchall()
    return [text.removeprefix("SELECT ") for (text,) in answers]


def _name_columns(tree: Any, places: list[int]) -> None:
    """Let the index of what refers to a column be the column's number; -1 where it is seen to be a lambda's own."""
    if isinstance(tree, dict):
        if tree.get("type") == "BOUND_REF":
            tree["index"] = places[tree["index"]] if tree["index"] < len(places) else -1
        tree = [value for name, value in tree.items() if name != _LAMBDA]
    elif not isinstance(tree, list):
        return
    for one in tree:
        _name_columns(one, places)


def _bound(tree: dict[str, Any]) -> Bound:
    kind = tree["type"]
    if kind == "VALUE_CONSTANT":
        constant = tree["value"]
        value = None if constant["is_null"] else constant["value"]
        return Bound("CONSTANT", _type(constant["type"]), value=value, tree=tree)
    type = _type(tree["return_type"]) if "return_type" in tree else "BOOLEAN"
    if kind == "BOUND_REF":
        return Bound("COLUMN", type, value=tree["index"], tree=tree)
    if kind == "CASE_EXPR":
        parts = [part for check in tree["case_checks"] for part in (check["when_expr"], check["then_expr"])]
        return Bound("CASE", type, tuple(map(_bound, (*parts, tree["else_expr"]))), tree=tree)
    children = tuple(map(_bound, tree.get("children", ())))
    if kind == "BOUND_FUNCTION" and tree["qname"]["path"][:2] == ["system", "main"]:
        return Bound(tree["qname"]["path"][2], type, children, tree=tree)
    return Bound(_OPERATORS.get(kind, "?"), type, children, tree=tree)


def _type(type: dict[str, Any]) -> str:
    details = type["type_info"]
    if details is None:
        name: str = type["id"]
        return name
    if type["id"] == "DECIMAL" and not details["alias"] and not details["extension_info"]:
        return f"DECIMAL({details['width']},{details['scale']})"
    return ""


@functools.lru_cache(maxsize=8)
def _cursor(settings: Settings) -> duckdb.DuckDBPyConnection:
    return under(_connection(), settings)


@functools.cache
def _connection() -> duckdb.DuckDBPyConnection:
    """A connection that rewrites expressions, but neither judges them by the rows of an empty table nor moves them."""
    connection = connect()
    names = [name for (name,) in connection.execute("FROM duckdb_optimizers()").fetchall()]
    others = ",".join(name for name in names if name != "expression_rewriter")
    connection.execute(f"SET disabled_optimizers = '{others}'")
    return connection

"""Constants and parameters of a statement as Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.sql.parse_tree import Tree, render, walk
from sqlfront.sql.tokens import tokenize

if TYPE_CHECKING:
    import duckdb

MISSING = object()
"""What is no constant, or one that DuckDB refuses."""


def constant_of(duck: duckdb.DuckDBPyConnection, tree: Tree, params: Any) -> Any:
    """The value of a constant, a cast of one, or a parameter; else MISSING."""
    if tree["class"] == "PARAMETER":
        return parameter(params, tree["identifier"])
    if tree["class"] == "CONSTANT" and tree["literal"].get("kind") == "INTEGER":
        return int(tree["literal"]["text"])  # Without printing the tree, which takes a millisecond.
    if any(part["class"] not in ("CONSTANT", "CAST", "TYPE") for part in walk(tree)):
        return MISSING
    return constant(duck, render(tree))


def constant(duck: duckdb.DuckDBPyConnection, text: str) -> Any:
    """The value of an expression without columns; MISSING if DuckDB refuses it."""
    import duckdb

    tokens = tokenize(text)
    if len(tokens) == 1 and tokens[0].kind == "number" and tokens[0].text.isdigit():
        return int(tokens[0].text)
    if len(tokens) == 1 and tokens[0].kind == "string" and tokens[0].text.startswith("'"):
        return tokens[0].value
    try:
        return duck.execute(f"SELECT {text}").fetchall()[0][0]
    except duckdb.Error:  # DuckDB reports it better when it runs the statement.
        return MISSING


def parameter(params: Any, name: str) -> Any:
    """The value given for a parameter, called so or counted from 1; else MISSING."""
    if isinstance(params, Mapping):
        return params.get(name, MISSING)
    given = isinstance(params, Sequence) and name.isdigit() and int(name) <= len(params)
    return params[int(name) - 1] if given else MISSING

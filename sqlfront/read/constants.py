"""Constants and parameters of a query as Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.sql.dialect import printed
from sqlfront.sql.query_trees import is_constant, parameter_name

if TYPE_CHECKING:
    import duckdb

MISSING = object()
"""No constant, or a constant that DuckDB refuses."""


def constant_of(duck: duckdb.DuckDBPyConnection, node: exp.Expr, params: Any) -> Any:
    """The value of a constant, a cast of one, or a parameter; else MISSING. Only casts are computed by DuckDB."""
    import duckdb

    node = node.unnest()
    if isinstance(node, exp.Placeholder):
        return _parameter(params, parameter_name(node))
    if isinstance(node, exp.Literal) and node.is_string:
        return node.this
    if isinstance(node, exp.Literal) and node.this.isdecimal():
        return int(node.this)
    if not is_constant(node):
        return MISSING
    try:
        return duck.execute(f"SELECT {printed(node)}").fetchall()[0][0]
    except duckdb.Error:  # DuckDB reports it better when it runs the statement.
        return MISSING


def _parameter(params: Any, name: str) -> Any:
    """The value given for a parameter, called so or counted from 1; else MISSING."""
    if isinstance(params, Mapping):
        return params.get(name, MISSING)
    given = isinstance(params, Sequence) and name.isdigit() and int(name) <= len(params)
    return params[int(name) - 1] if given else MISSING

"""ORDER BY items of a query: the position that a number names, and how an expression is spelled."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from sqlfront.sql.dialect import printed

_SPELLED = "spelled"


def position_of(node: exp.Expr) -> int | None:
    """The position that a number in ORDER BY names."""
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.this.isdecimal()
    return int(node.this) if is_number else None


def spelled(con: Any, node: exp.Expr) -> str | None:
    """An expression over a view's columns, as orders are told apart by: as DuckDB prints it, in lower case; None for
    one that DuckDB does not read. It is noted at the node, so that a remembered query asks once."""
    import duckdb

    from sqlfront.binding.select_items import printed_by_duckdb

    if _SPELLED not in node.meta:
        try:
            [text] = printed_by_duckdb([printed(node)], con)
        except duckdb.Error:
            return None
        node.meta[_SPELLED] = text.casefold()
    return str(node.meta[_SPELLED])

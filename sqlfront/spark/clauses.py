"""WHERE, ORDER BY and LIMIT of a read, from the options `where`, `order_by` and `limit` that Spark's workers send.

The server runs them with the driver's rights, so each must be what it is called: one condition, one list of columns and
expressions, one whole number. DuckDB's own parser decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlfront.sql.parse_tree import Tree, try_parse_select, walk
from sqlfront.storage.errors import ProgrammingError

_QUERY = "SELECT 1 FROM t"
_PARTS = {"where": ("WHERE (\n{}\n)", "where_clause"), "order_by": ("ORDER BY\n{}\n", "modifiers")}


def clauses(request: Mapping[str, Any]) -> str:
    """The clauses as SQL. ProgrammingError for an option that is anything else, or has a subquery in it."""
    found = []
    for option, (form, part) in _PARTS.items():
        if text := request.get(option):
            clause = form.format(text)
            tree = try_parse_select(f"{_QUERY} {clause}")
            if tree is None or not _has_only(tree, part):
                raise ProgrammingError(
                    f"option {option} is {text!r}",
                    why="it must be one condition over the view's columns, or columns to order by, without subqueries",
                    hint="make a materialized view of a larger query, and read that",
                )
            found.append(f" {clause}")
    if limit := request.get("limit"):
        if not str(limit).isdecimal():
            raise ProgrammingError(f"option limit is {limit!r}", hint="give a whole number of rows")
        found.append(f" LIMIT {limit}")
    return "".join(found)


def _has_only(tree: Tree, part: str) -> bool:
    """Whether a query has this part and nothing else, and no query within."""
    plain = try_parse_select(_QUERY)
    assert plain is not None
    if tree != plain | {part: tree.get(part)}:
        return False
    modifiers = tree["modifiers"]
    ordered = part == "where_clause" or [modifier["type"] for modifier in modifiers] == ["ORDER_MODIFIER"]
    return ordered and all(node.get("class") != "SUBQUERY" for node in walk(tree))

"""WHERE, ORDER BY and LIMIT of a read, from the options `where`, `order_by` and `limit` that Spark's workers send.

The server runs them with the driver's rights, so each must be what it is called: one condition, one list of columns and
expressions, one whole number. A clause is printed from its tree, so nothing but the clause reaches DuckDB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from sqlfront.sql.dialect import parse_one, printed
from sqlfront.storage.errors import ProgrammingError

_QUERY = "SELECT 1 FROM t"
_PARTS = {"where": ("WHERE (\n{}\n)", "where"), "order_by": ("ORDER BY\n{}\n", "order")}


def clauses(request: Mapping[str, Any]) -> str:
    """The clauses as SQL. ProgrammingError for an option that is anything else, or has a subquery in it."""
    found = []
    for option, (form, part) in _PARTS.items():
        if text := request.get(option):
            clause = _only(f"{_QUERY} {form.format(text)}", part)
            if clause is None:
                raise ProgrammingError(
                    f"option {option} is {text!r}",
                    why="it must be one condition over the view's columns, or columns to order by, without subqueries",
                    hint="make a materialized view of a larger query, and read that",
                )
            found.append(f" {printed(clause).strip()}")
    if limit := request.get("limit"):
        if not str(limit).isdecimal():
            raise ProgrammingError(f"option limit is {limit!r}", hint="give a whole number of rows")
        found.append(f" LIMIT {limit}")
    return "".join(found)


def _only(text: str, part: str) -> exp.Expr | None:
    """The clause of a query that has this one and nothing else, and no query within."""
    try:
        query = parse_one(text)
    except ProgrammingError:
        return None
    clause = query.args.get(part)
    query.set(part, None)
    if clause is None or query != parse_one(_QUERY) or clause.find(exp.Query, exp.Values, exp.Table):
        return None
    return clause

"""A query that DuckDB 2.0's optimizer `row_group_pruner` leaves alone.

The pruner answers ORDER BY ... LIMIT from the statistics of row groups, and these count deleted rows: after a DELETE
the answer may lack rows. It takes constants alone, so a LIMIT or OFFSET is written as a subquery. The setting
disabled_optimizers is not ours to change: it is one for all connections of a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.sql.dialect import printed

if TYPE_CHECKING:
    from sqlfront.database.database import Database


def unpruned(database: Database, query: exp.Expr) -> str:
    """The query's text with LIMIT (SELECT n) for LIMIT n, where DuckDB plans it.

    A correlated subquery takes constants alone, and the pruner does not reach it.
    """
    import duckdb

    if not is_pruned(query):
        return printed(query)
    everywhere, outermost = _hidden(query, inner=True), _hidden(query, inner=False)
    with database.cursor() as con:  # An error would abort a transaction of the user's.
        for text in dict.fromkeys((everywhere, outermost)):
            try:
                con.execute(f"EXPLAIN {text}").fetchall()
            except duckdb.Error:
                continue
            return text
    return printed(query)


def is_pruned(query: exp.Expr) -> bool:
    """Whether the pruner may take part in a query."""
    return bool(_numbers(query, inner=True))


def _hidden(query: exp.Expr, *, inner: bool) -> str:
    """The query with the numbers of LIMIT and OFFSET in subqueries; `inner`: those of its own subqueries too."""
    changed = query.copy()
    for clause in _numbers(changed, inner=inner):
        clause.set("expression", exp.Subquery(this=exp.Select(expressions=[clause.expression.copy()])))
    return printed(changed)


def _numbers(query: exp.Expr, *, inner: bool) -> list[exp.Expr]:
    """The clauses LIMIT and OFFSET that are numbers."""
    return [
        clause
        for clause in query.find_all(exp.Limit, exp.Offset)
        if isinstance(clause.expression, exp.Literal)
        and not clause.args.get("limit_options")
        and (inner or clause.parent is query)
    ]

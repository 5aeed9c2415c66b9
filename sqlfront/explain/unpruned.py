"""A query that DuckDB 2.0's optimizer `row_group_pruner` leaves alone.

The pruner answers ORDER BY ... LIMIT from the statistics of row groups, and these count deleted rows: after a DELETE
the answer may lack rows. It takes constants alone, so a LIMIT or OFFSET is written as a subquery. The setting
disabled_optimizers is not ours to change: it is one for all connections of a database.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlfront.sql.tokens import tokenize

if TYPE_CHECKING:
    from sqlfront.database.database import Database

Edit = tuple[int, int, str, int]


def unpruned(database: Database, query: str) -> str:
    """The query with LIMIT (SELECT n) for LIMIT n, where DuckDB plans it.

    A correlated subquery takes constants alone, and the pruner does not reach it.
    """
    import duckdb

    from sqlfront.database.stored_views import register_all

    edits = list(_edits(query))
    outermost = [edit for edit in edits if edit[3] == 0]
    if not edits:
        return query
    with database.root.cursor() as con:  # An error would abort a transaction of the user's.
        register_all(database, con)
        for chosen in (edits, outermost):
            text = _edited(query, chosen)
            try:
                con.execute(f"EXPLAIN {text}").fetchall()
            except duckdb.Error:
                continue
            return text
    return query


def _edits(query: str) -> Iterator[Edit]:
    """(start, end, replacement, depth of parentheses) of the numbers behind LIMIT and OFFSET."""
    tokens, depth = tokenize(query), 0
    for i, token in enumerate(tokens[:-1]):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        number, after = tokens[i + 1], tokens[i + 2].text.casefold() if i + 2 < len(tokens) else ""
        if token.keyword in ("limit", "offset") and number.kind == "number" and after not in ("%", "percent"):
            yield number.start, number.end, f"(SELECT {number.text})", depth


def _edited(query: str, edits: list[Edit]) -> str:
    for start, end, replacement, _ in reversed(edits):
        query = query[:start] + replacement + query[end:]
    return query

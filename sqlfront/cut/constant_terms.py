"""Terms that no table decides: VALUES, a block without FROM, and what is computed row by row of such rows."""

from __future__ import annotations

from sqlfront.planner.algebra.terms import Filter, Join, Map, Term, Unnest, Values, free_columns, walk

ONE_ROW = Values((), ((),))
"""The row without columns that a block without FROM reads."""
_ROW_BY_ROW = (Values, Map, Filter, Unnest, Join)


def is_constant(term: Term) -> bool:
    """Whether DuckDB may compute a term once and for all. A term of one row is none: its values take their places.

    Aggregates, windows and orders are no part of such a term: their ties are decided by the forms that blocks have.
    """
    parts = list(walk(term))
    makes_rows = any(isinstance(part, Unnest) or (isinstance(part, Values) and len(part.rows) != 1) for part in parts)
    return makes_rows and all(isinstance(part, _ROW_BY_ROW) for part in parts) and not free_columns(term)


def column_type(type_: str) -> str:
    """The type in which a column is kept: that of NULL alone is DuckDB's INTEGER."""
    return "INTEGER" if type_ == '"NULL"' else type_

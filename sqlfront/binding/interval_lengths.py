"""Queries whose answer depends on how DuckDB compares intervals: 30 days equal 1 month, though they are two values."""

from __future__ import annotations

from sqlfront.planner.algebra.rewriting import walk_once
from sqlfront.planner.algebra.scalars import Scalar, parts_of, walk
from sqlfront.planner.algebra.terms import Term, scalars_of


def compares_intervals(term: Term) -> bool:
    """Whether a column or an argument of an operator holds an INTERVAL, or a condition compares some."""
    return any(
        any("INTERVAL" in column.type for column in part.columns) or any(map(_compares, scalars_of(part)))
        for part in walk_once(term)
    )


def _compares(scalar: Scalar) -> bool:
    return "INTERVAL" in scalar.type or any(
        part.type == "BOOLEAN" and any("INTERVAL" in one.type for one in parts_of(part)) for part in walk(scalar)
    )

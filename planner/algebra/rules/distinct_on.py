"""The first row of those that agree in some columns is the row with number 1: a ranked tree keeps it.

`SELECT DISTINCT ON (k) ... ORDER BY k, t DESC` is `QUALIFY row_number() OVER (PARTITION BY k ORDER BY k, t DESC) = 1`.
As DISTINCT ON, all rows of a group that a change touches are read anew.
"""

from __future__ import annotations

from sqlfront.planner.algebra.rewriting import NewColumns, passed, rewrite
from sqlfront.planner.algebra.scalars import Compare, Constant, Ref
from sqlfront.planner.algebra.terms import Distinct, Filter, Map, Term, Window, Windowed


def turn_distinct_on_into_first_rows(term: Term) -> Term:
    """A term with filters of row numbers in the place of DISTINCT ON."""
    new = NewColumns(term)

    def change(part: Term) -> Term:
        if not isinstance(part, Distinct) or part.on is None:
            return part
        number = new.column("row_number", "BIGINT")
        numbered = Windowed(number, "row_number()", partition=tuple(map(Ref, part.on)), order=part.order)
        first = Filter(Window(part.input, (numbered,)), Compare("=", Ref(number), Constant("1", "BIGINT")))
        return Map(first, passed(part.columns))

    return rewrite(term, change)

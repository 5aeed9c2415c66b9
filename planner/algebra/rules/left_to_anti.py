"""A left join becomes an anti join where only its rows without a partner pass: a column that every partner has is NULL.

Source: Galindo-Legaria and Rosenthal, Outerjoin simplification and reordering, TODS 1997.
"""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.algebra.rewriting import passed, rewrite
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, never_null, rejected
from sqlfront.planner.algebra.scalars import (
    IsNull,
    Scalar,
    conjunction,
    conjuncts,
    is_never_null,
    is_null_where,
    null,
)
from sqlfront.planner.algebra.terms import Filter, Join, Made, Map, Term


def turn_left_into_anti(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term with anti joins for the left joins of which only rows without a partner are read."""

    def change(part: Term) -> Term:
        if not isinstance(part, Filter) or not isinstance(part.input, Join) or part.input.kind != "left":
            return part
        join, conditions = part.input, conjuncts(part.condition)
        true = [one for one in conditions if _is_true_without_partner(one, join)]
        if not any(_is_false_with_partner(one, join, facts) for one in true):
            return part
        missing = tuple(Made(column, null(column.type)) for column in join.right.columns)
        rows = Map(replace(join, kind="anti"), (*passed(join.left.columns), *missing))
        rest = [one for one in conditions if one not in true]
        return Filter(rows, conjunction(rest)) if rest else rows

    return rewrite(term, change)


def _is_true_without_partner(one: Scalar, join: Join) -> bool:
    return isinstance(one, IsNull) and is_null_where(one.part, frozenset(join.right.columns))


def _is_false_with_partner(one: Scalar, join: Join, facts: Facts) -> bool:
    present = never_null(join.left, facts) | never_null(join.right, facts) | rejected(join.condition)
    return isinstance(one, IsNull) and is_never_null(one.part, present)

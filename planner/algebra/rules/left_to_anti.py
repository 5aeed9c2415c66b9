"""A left join becomes an anti join where only its rows without a partner pass: a column that every partner has is NULL.

Source: Galindo-Legaria and Rosenthal, Outerjoin simplification and reordering, TODS 1997.
"""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.algebra.rewriting import passed, rewrite
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, never_null, rejected
from sqlfront.planner.algebra.scalars import (
    Column,
    Compare,
    IsNull,
    Ref,
    Scalar,
    conjunction,
    conjuncts,
    is_never_null,
    is_null_where,
    null,
    substitute,
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
    tested = _tested(one)
    return tested is not None and is_null_where(tested, frozenset(join.right.columns))


def _is_false_with_partner(one: Scalar, join: Join, facts: Facts) -> bool:
    condition, computed = join.condition, frozenset[Column]()
    if isinstance(join.right, Map):  # A computed column has a value only where the columns that it is strict in do.
        made = join.right.made
        below = rejected(substitute(condition, {part.column: part.value for part in made}))
        computed = frozenset(part.column for part in made if isinstance(part.value, Ref) and part.value.column in below)
    present = never_null(join.left, facts) | never_null(join.right, facts) | rejected(condition) | computed
    tested = _tested(one)
    return tested is not None and is_never_null(tested, present)


def _tested(one: Scalar) -> Scalar | None:
    """What a condition says is NULL; None for another condition."""
    match one:
        case IsNull(part=part):
            return part
        case Compare(operator="IS NOT DISTINCT FROM", left=left, right=right):
            return left if is_null_where(right, frozenset()) else right if is_null_where(left, frozenset()) else None
    return None

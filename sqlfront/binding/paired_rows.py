"""Outer, semi and anti joins whose ON asks a subquery about both sides.

The subquery is asked for each pair of the sides' different values that it, or the rest of ON, reads. The pairs that
meet ON are a table of their own, of different rows. The sides are joined through it by those values, where NULL equals
NULL. So rows that are equal have the same partners, each as often as it is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlfront.binding.environment import Environment
from sqlfront.binding.subqueries import Subqueries
from sqlfront.planner.algebra.rewriting import copied, passed, projected
from sqlfront.planner.algebra.scalars import Column, Compare, Constant, Ref, Scalar, columns_of, conjunction, substitute
from sqlfront.planner.algebra.terms import (
    Distinct,
    Join,
    JoinKind,
    Made,
    Map,
    SetOperation,
    Term,
    free_columns,
)

Pairs = tuple[Term, dict[Column, Column]]
"""The pairs, and their column for each column of a side."""


def joined_through_pairs(
    kind: JoinKind, left: Term, right: Term, condition: Scalar, subqueries: Subqueries, environment: Environment
) -> Term:
    """A join, `left` or `full`, `semi` or `anti`, on a condition that reads the columns of waiting subqueries."""
    pairs, columns = _pairs(left, right, condition, subqueries, environment)
    if kind in ("semi", "anti"):
        return Join(kind, left, pairs, _same(left.columns, columns))
    beside = Join("inner", right, pairs, _same(right.columns, columns))
    paired = projected(beside, (*right.columns, *(columns[one] for one in left.columns if one in columns)))
    found = projected(Join("left", left, paired, _same(left.columns, columns)), (*left.columns, *right.columns))
    return _with_lonely_rows(found, right, environment, (pairs, columns)) if kind == "full" else found


def _pairs(left: Term, right: Term, condition: Scalar, subqueries: Subqueries, environment: Environment) -> Pairs:
    read = set(columns_of(condition, *(one.condition for one in subqueries.waiting.values())))
    read.update(column for one in subqueries.waiting.values() for column in free_columns(one.term))
    columns: dict[Column, Column] = {}
    sides: list[Term] = []
    for side in (left, right):
        copy, renewed = copied(side, environment.numbers)
        for old, new in renewed.items():
            environment.notes.move(old, new)
            if old in environment.notes.collated:
                environment.notes.collated[new] = environment.notes.collated[old]
        own = {column: renewed[column] for column in side.columns if column in read}
        columns |= own
        sides.append(Distinct(Map(copy, passed(own.values()))))
    refs: dict[Column, Scalar] = {old: Ref(new) for old, new in columns.items()}
    subqueries.lower(lambda scalar: substitute(scalar, refs))
    met = subqueries.filtered(Join("inner", sides[0], sides[1]), substitute(condition, refs))
    return projected(met, list(columns.values())), columns


def _same(side: Sequence[Column], columns: dict[Column, Column]) -> Scalar:
    """Whether the values of a side are those of a pair."""
    return conjunction([Compare("IS NOT DISTINCT FROM", Ref(one), Ref(columns[one])) for one in side if one in columns])


def _with_lonely_rows(found: Term, right: Term, environment: Environment, pairs: Pairs) -> Term:
    """The rows of a left join, and those of the right side without a partner."""
    (term, pair_columns), columns = (pairs[0], pairs[1]), found.columns
    other, renewed = copied(term, environment.numbers)
    lonely = Join("anti", right, other, _same(right.columns, {a: renewed[b] for a, b in pair_columns.items()}))
    own = set(right.columns)
    like = {column: environment.numbers.column(column.name, column.type) for column in columns}
    made = [
        Made(like[one], Ref(one) if one in own else Constant(f"CAST(NULL AS {one.type})", one.type)) for one in columns
    ]
    both = tuple(environment.numbers.column(column.name, column.type) for column in columns)
    union = SetOperation("union", True, found, Map(lonely, tuple(made)), both)
    return Map(union, tuple(Made(old, Ref(new)) for old, new in zip(columns, both, strict=True)))

"""The first row of each group of an inequality join becomes an as-of join, where each group is one row of a side.

`LATERAL (SELECT ... FROM s WHERE s.k = r.k AND s.t <= r.t ORDER BY s.t DESC LIMIT 1)`, a scalar subquery of the same
form, and `QUALIFY row_number() OVER (PARTITION BY r.id ORDER BY s.t DESC) = 1` with a key r.id. The rest of the order
decides ties: of rows of s with one key and one time only the first is joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlfront.planner.algebra.first_of_groups import first_rows
from sqlfront.planner.algebra.join_sides import sides_of
from sqlfront.planner.algebra.rewriting import rewrite
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, keys_of
from sqlfront.planner.algebra.scalars import (
    MIRRORED,
    Column,
    Compare,
    Constant,
    Operator,
    Ref,
    Scalar,
    columns_of,
    conjunction,
    substitute,
)
from sqlfront.planner.algebra.terms import Distinct, Filter, Join, Made, Map, Sort, Term


def turn_first_rows_into_nearest(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term with as-of joins for the first rows of groups that these are."""

    def change(part: Term) -> Term:
        first = first_rows(part) if isinstance(part, Filter) else None
        if first is None or (first.name, first.rows, first.offset) != ("row_number", 1, 0):
            return part
        below, values = first.input, dict[Column, Scalar]()
        if isinstance(below, Map):
            values = {one.column: one.value for one in below.made}
        rows = below.input if isinstance(below, Map) else below
        if not isinstance(rows, Join) or rows.kind != "inner" or rows.dependent:
            return part
        partition = [substitute(value, values) for value in first.numbering.partition]
        order = [replace(one, value=substitute(one.value, values)) for one in first.numbering.order]
        sides = ((rows.left, rows.right), (rows.right, rows.left))
        joined = (_nearest(left, right, rows.condition, partition, order, facts) for left, right in sides)
        found = next((one for one in joined if one is not None), None)
        if found is None:
            return part
        values |= {first.numbering.column: Constant("1", first.numbering.column.type)}
        shown = Map(found, tuple(Made(column, _value(column, values)) for column in part.columns))
        return Filter(shown, conjunction(first.rest)) if first.rest else shown

    return rewrite(term, change)


def _value(column: Column, values: Mapping[Column, Scalar]) -> Scalar:
    return values.get(column, Ref(column))


def _nearest(
    left: Term, right: Term, condition: Scalar, partition: Sequence[Scalar], order: Sequence[Sort], facts: Facts
) -> Join | None:
    """The as-of join of rows of the left with the first of their partners; None if the partitions are no rows of the
    left, or the order is not that of the comparison."""
    columns, theirs = {one.column for one in partition if isinstance(one, Ref)}, frozenset(right.columns)
    is_row = columns <= frozenset(left.columns) and any(key <= columns for key in keys_of(left, facts))
    sides = sides_of(condition, left.columns, right.columns)
    if not is_row or len(columns) < len(set(partition)) or len(sides.both) != 1 or sides.left or sides.right:
        return None
    compared = _oriented(sides.both[0], theirs)
    by = [one for one in order if columns_of(one.value) & theirs]
    if compared is None or not by or not all(columns_of(one.value) <= theirs for one in by):
        return None
    operator, mine, time = compared
    if by[0].value != time or by[0].descending != (operator in (">", ">=")):
        return None
    on = [value.column for value in (*(pair.theirs for pair in sides.pairs), time) if isinstance(value, Ref)]
    if len(on) <= len(sides.pairs):
        return None
    if not any(key <= set(on) for key in keys_of(right, facts)):
        right = Distinct(right, tuple(dict.fromkeys(on)), tuple(by[1:]))
    same = [Compare(pair.operator, pair.mine, pair.theirs) for pair in sides.pairs]
    return Join("as-of", left, right, conjunction([*same, Compare(operator, mine, time)]))


def _oriented(one: Scalar, right: frozenset[Column]) -> tuple[Operator, Scalar, Scalar] | None:
    """An inequality of the left side and a column of the right one; None for any other condition."""
    if not isinstance(one, Compare) or one.operator not in ("<", "<=", ">", ">="):
        return None
    for operator, mine, theirs in ((one.operator, one.left, one.right), (MIRRORED[one.operator], one.right, one.left)):
        if isinstance(theirs, Ref) and theirs.column in right and columns_of(mine) and not columns_of(mine) & right:
            return operator, mine, theirs
    return None

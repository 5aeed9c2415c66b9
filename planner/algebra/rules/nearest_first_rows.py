"""The first rows of each group of an inequality join become an as-of join, where each group is one row of a side.

`LATERAL (SELECT ... FROM s WHERE s.k = r.k AND s.t <= r.t ORDER BY s.t DESC LIMIT 3)`, a scalar subquery of the same
form, `QUALIFY row_number() OVER (PARTITION BY r.id ORDER BY s.t DESC) <= 3` with a key r.id, and `DISTINCT ON (r.id)`
with this order. The rest of the order decides ties. The number of a row is known where there is one row, and must not
be read of several. A left join becomes an as-of left join: the row of NULLs is alone in its group.

Of two bounds, `s.t BETWEEN r.a AND r.b`, the order goes away from one. The rows within the other bound are the first of
those that the as-of join finds, so it is a filter of these. Of a left join the nearest row alone is sought then, and
its columns are NULL where it is beyond the other bound, or the row of the left misses a condition of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlfront.planner.algebra.clock import BETWEEN
from sqlfront.planner.algebra.column_use import Columns, columns_read
from sqlfront.planner.algebra.first_of_groups import first_rows
from sqlfront.planner.algebra.join_sides import sides_of
from sqlfront.planner.algebra.rewriting import with_changed
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, keys_of
from sqlfront.planner.algebra.scalars import (
    MIRRORED,
    Call,
    Column,
    Compare,
    Constant,
    Operator,
    Ref,
    Scalar,
    can_fail,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
)
from sqlfront.planner.algebra.terms import Common, Distinct, Filter, Join, JoinKind, Made, Map, Sort, Term, inputs_of
from sqlfront.planner.algebra.unfailing import unfailing

_JOINS = (("inner", False), ("inner", True), ("left", False))
"""The kinds of joins, and whether conditions stand apart from them."""
Oriented = tuple[Operator, Scalar, Scalar]
"""An inequality, with the side of the left first."""


def turn_first_rows_into_nearest(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term with as-of joins for the first rows of groups that these are."""
    return _Turning(facts).visit(term, frozenset(term.columns))


class _Turning:
    """One run of the rule; of a shared term all columns are read."""

    def __init__(self, facts: Facts) -> None:
        self._facts, self._shared = facts, dict[str, Term]()

    def visit(self, term: Term, needed: Columns) -> Term:
        """The term after the rule. Nobody reads more of it than the `needed` columns."""
        if isinstance(term, Common):
            if term.name not in self._shared:
                self._shared[term.name] = self.visit(term.term, frozenset(term.term.columns))
            return with_changed(term, (self._shared[term.name],))
        inputs = [self.visit(part, read) for part, read in zip(inputs_of(term), columns_read(term, needed))]
        term = with_changed(term, inputs)
        if isinstance(term, Distinct) and term.on is not None:
            return self._turned(term, term.input, [*map(Ref, term.on)], term.order, 1, {})
        first = first_rows(term) if isinstance(term, Filter) else None
        if first is None or first.name != "row_number" or first.offset or not first.rows:
            return term
        number = first.numbering.column
        is_read = number in needed or number in columns_of(*first.rest)
        if is_read and first.rows > 1:
            return term
        numbers: dict[Column, Scalar] = {number: Constant(f"CAST(1 AS {number.type})", number.type)}
        partition, order = first.numbering.partition, first.numbering.order
        found = self._turned(term, first.input, partition, order, first.rows, numbers)
        return Filter(found, conjunction(first.rest)) if first.rest and found != term else found

    def _turned(
        self, term: Term, below: Term, partition: Sequence[Scalar], order: Sequence[Sort], count: int,
        known: Mapping[Column, Scalar],
    ) -> Term:  # fmt: skip
        """The first rows of each partition as an as-of join; the term as it is if they are none. The term's columns
        are those of the rows below, or are `known`."""
        values = {one.column: one.value for one in below.made} if isinstance(below, Map) else dict[Column, Scalar]()
        rows = _in_join(below.input if isinstance(below, Map) else below)
        if rows is None:
            return term
        partition = [substitute(value, values) for value in partition]
        order = [replace(one, value=substitute(one.value, values)) for one in order]
        sides = ((rows.left, rows.right), (rows.right, rows.left))[: 1 if rows.kind == "left" else 2]
        joined = (_nearest(replace(rows, left=a, right=b), partition, order, count, self._facts) for a, b in sides)
        found = next((one for one in joined if one is not None), None)
        values |= known
        made = tuple(Made(column, _value(column, values)) for column in term.columns)
        return term if found is None else Map(found, made)


def _in_join(term: Term) -> Join | None:
    """The inner or left join that a term is, with the conditions of a filter over it. These are inequalities with a
    bound that may overflow, `s.t <= r.t + 5`, and are apart from an inner join. None if another condition is there."""
    apart = conjuncts(term.condition) if isinstance(term, Filter) else ()
    rows = term.input if isinstance(term, Filter) else term
    if not isinstance(rows, Join) or rows.dependent or (rows.kind, bool(apart)) not in _JOINS:
        return None
    inside: Sequence[Scalar | None] = conjuncts(rows.condition)
    if rows.kind == "left":
        inside = [unfailing(bound) for one in conjuncts(rows.condition) for bound in bounds_of(one)]
    found = [*inside, *map(unfailing, apart)]
    return None if None in found else replace(rows, condition=conjunction([one for one in found if one is not None]))


def _value(column: Column, values: Mapping[Column, Scalar]) -> Scalar:
    return values.get(column, Ref(column))


def _nearest(rows: Join, partition: Sequence[Scalar], order: Sequence[Sort], count: int, facts: Facts) -> Term | None:
    """The as-of join of rows of the left with their first partners; None if the partitions are no rows of the
    left, or the order is not that of the comparison."""
    left, right = rows.left, rows.right
    columns, theirs = {one.column for one in partition if isinstance(one, Ref)}, frozenset(right.columns)
    is_row = columns <= frozenset(left.columns) and any(key <= columns for key in keys_of(left, facts))
    sides = sides_of(rows.condition, left.columns, right.columns)
    own = () if rows.kind == "inner" else sides.left
    bounds = None if sides.right or len(own) < len(sides.left) else bounds_of_one(sides.both, theirs)
    by = [one for one in order if columns_of(one.value) & theirs]
    if not is_row or len(columns) < len(set(partition)) or bounds is None or not by:
        return None
    nearest = next((one for one in bounds if goes_away(one, by[0])), None)
    if nearest is None or not all(columns_of(one.value) <= theirs for one in by):
        return None
    same = [Compare(pair.operator, pair.mine, pair.theirs) for pair in sides.pairs]
    kind: JoinKind = "as-of left" if rows.kind == "left" else "as-of"
    found = Join(kind, left, right, conjunction([*same, Compare(*nearest)]), order=tuple(by), count=count)
    others = [one for one in bounds if one != nearest]
    if rows.kind == "inner" or not (others or own):
        return within(others, found)
    return _null_beyond([*own, *(Compare(*one) for one in others)], found) if count == 1 else None


def _null_beyond(conditions: Sequence[Scalar], found: Join) -> Map:
    """Each row of the left with its partner, or with NULLs if it does not meet the conditions with the partner."""
    condition = conjunction(conditions)
    guard = "CASE WHEN {0} THEN {1} END"
    theirs = [
        Made(column, Call(guard, (condition, Ref(column)), column.type, can_fail=can_fail(condition)))
        for column in found.right.columns
    ]
    return Map(found, (*(Made(column, Ref(column)) for column in found.left.columns), *theirs))


def bounds_of_one(both: Sequence[Scalar], right: frozenset[Column]) -> list[Oriented] | None:
    """The one or two inequalities of a join, if they bound one column of the right from one side each."""
    found = [oriented(one, right) for condition in both for one in bounds_of(condition)]
    compared = [one for one in found if one is not None]
    is_range = len({operator[0] for operator, _, _ in compared}) == len(compared) == len(found)
    return compared if compared and is_range and len({theirs for _, _, theirs in compared}) == 1 else None


def bounds_of(condition: Scalar) -> tuple[Scalar, ...]:
    """BETWEEN of one type as two comparisons; any other condition as it is."""
    if not isinstance(condition, Call) or condition.form != BETWEEN:
        return (condition,)
    value, low, high = condition.arguments
    is_exact = value.type == low.type == high.type
    return (Compare(">=", value, low), Compare("<=", value, high)) if is_exact else (condition,)


def goes_away(bound: Oriented, first: Sort) -> bool:
    """Whether an order begins with the rows that are nearest to a bound."""
    operator, _, time = bound
    return first.value == time and first.descending == (operator in (">", ">="))


def within(bounds: Sequence[Oriented], found: Term) -> Term:
    """The rows that are within other bounds, too."""
    return Filter(found, conjunction([Compare(*one) for one in bounds])) if bounds else found


def oriented(one: Scalar, right: frozenset[Column]) -> Oriented | None:
    """An inequality of the left side and a column of the right one; None for any other condition."""
    if not isinstance(one, Compare) or one.operator not in ("<", "<=", ">", ">="):
        return None
    for operator, mine, theirs in ((one.operator, one.left, one.right), (MIRRORED[one.operator], one.right, one.left)):
        if isinstance(theirs, Ref) and theirs.column in right and columns_of(mine) and not columns_of(mine) & right:
            return operator, mine, theirs
    return None

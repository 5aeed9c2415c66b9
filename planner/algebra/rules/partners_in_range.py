"""An anti join by a range becomes an as-of join: where a row has no partner, its nearest row is missing or too far.

`NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.t > r.t)`, and the left join that tests for NULL, keep the last rows
of each key. A new last row concerns the rows between the former one and itself; by numbers of partners it would
concern all rows of the key. Of two bounds, `s.t BETWEEN r.a AND r.b`, the row that is nearest to one is beyond the
other; so a semi join by two bounds is an as-of join, too. With ties, `s.t > r.t OR (s.t = r.t AND s.id > r.id)`, there
is no partner if neither alternative has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlfront.planner.algebra.join_sides import Copies, sides_of
from sqlfront.planner.algebra.rewriting import NewColumns, passed, rewrite
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts
from sqlfront.planner.algebra.rules.nearest_first_rows import Oriented, bounds_of, bounds_of_one
from sqlfront.planner.algebra.scalars import (
    Column,
    Compare,
    IsNull,
    Logic,
    Not,
    Ref,
    Scalar,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
    truth,
)
from sqlfront.planner.algebra.terms import Filter, Join, Made, Map, Term
from sqlfront.planner.algebra.unfailing import unfailing
from sqlfront.planner.model.ordered_types import ORDERED, family_of

_FILTERED = ("inner", "left", "semi", "anti", "as-of", "as-of left")
"""Joins whose left rows are joined independently of each other: a filter of the left can be below the join."""
_MOST = 3
"""Alternatives of an OR that are anti joins one after the other."""


def turn_partners_in_range_into_nearest(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term with as-of joins for the semi and anti joins whose condition bounds one column of the right."""
    if facts.in_shards:
        return term
    new = NewColumns(term)

    def change(part: Term) -> Term:
        if not isinstance(part, Join) or part.dependent or part.kind not in ("semi", "anti"):
            return part
        read = columns_of(part.condition) & frozenset(part.left.columns)
        return _in_part(part.left, read, lambda rows: _found(replace(part, left=rows), new)) or part

    return rewrite(term, change)


def _in_part(rows: Term, read: frozenset[Column], change: Callable[[Term], Term | None]) -> Term | None:
    """The rows after a change of their smallest part with all columns that are `read`. None if this part is a join,
    which would be stored, or if it does not change."""
    match rows:
        case Filter(input=input):
            found = _in_part(input, read, change)
            return found and replace(rows, input=found)
        case Map(input=input, made=made) if all(Made(column, Ref(column)) in made for column in read):
            found = _in_part(input, read, change)
            return found and replace(rows, input=found)
        case Map(input=Join() | Filter()):
            return None
        case Join(left=left, dependent=False, kind=kind) if kind in _FILTERED and read <= {*left.columns}:
            found = _in_part(left, read, change)
            return found and replace(rows, left=found)
        case Join(kind="inner", dependent=False, right=right) if read <= {*right.columns}:
            found = _in_part(right, read, change)
            return found and replace(rows, right=found)
        case Join():
            return None
    return change(rows)


def _found(term: Join, new: NewColumns) -> Term | None:
    return _nearest(term) or (_one_by_one(term, new) if term.kind == "anti" else None)


def _nearest(term: Join) -> Term | None:
    """The rows of the left by their nearest row of the right; None for another condition, and for a semi join by one
    bound, whose rows are found by the extreme of each key."""
    left, right = term.left, term.right
    found = [unfailing(bound) for one in conjuncts(term.condition) for bound in bounds_of(one)]
    if None in found:
        return None
    sides = sides_of(conjunction([one for one in found if one is not None]), left.columns, right.columns)
    bounds = bounds_of_one(sides.both, frozenset(right.columns))
    if bounds is None or not all(map(_is_ordered, bounds)) or len(bounds) < (1 if term.kind == "anti" else 2):
        return None
    nearest, *others = bounds
    same = [Compare(pair.operator, pair.mine, pair.theirs) for pair in sides.pairs]
    condition = conjunction([*same, *sides.left, *sides.right, Compare(*nearest)])
    within: list[Scalar] = [Compare(*one) for one in others]
    if term.kind == "semi":
        return Map(Filter(Join("as-of", left, right, condition), conjunction(within)), passed(left.columns))
    # Without a nearest row, its comparisons are NULL.
    missing = Not(truth(conjunction(within))) if within else IsNull(nearest[2])
    return Map(Filter(Join("as-of left", left, right, condition), missing), passed(left.columns))


def _is_ordered(bound: Oriented) -> bool:
    """Whether an inequality compares numbers or times."""
    _, mine, theirs = bound
    return family_of(mine.type) in ORDERED and family_of(theirs.type) in ORDERED


def _one_by_one(term: Join, new: NewColumns) -> Term | None:
    """An anti join by an OR as one by each alternative; None if one of these is no range."""
    conditions = conjuncts(term.condition)
    either = next((one for one in conditions if isinstance(one, Logic) and one.word == "OR"), None)
    if either is None or len(either.parts) > _MOST:
        return None
    rest, copies, rows = [one for one in conditions if one is not either], Copies(new), term.left
    for number, part in enumerate(either.parts):
        left = (_left_of(one, part, either.parts[:number]) for one in rest)
        right = copies.copy(term.right)
        refs: dict[Column, Scalar] = {old: Ref(column) for old, column in right.columns.items()}
        condition = substitute(conjunction([part, *(one for one in left if one is not None)]), refs)
        found = _nearest(replace(term, left=rows, right=right.term, condition=condition))
        if found is None:
            return None
        rows = found
    return rows


def _left_of(condition: Scalar, part: Scalar, before: Sequence[Scalar]) -> Scalar | None:
    """What a condition asks of pairs that meet `part`, and none of the alternatives `before`; None: nothing. Where
    x > y is one of them, x >= y is x = y."""
    if isinstance(condition, Logic) and condition.word == "OR":
        left = tuple(one for one in condition.parts if one not in before)
        if part in condition.parts or not left:
            return None if left else condition
        return left[0] if len(left) == 1 else replace(condition, parts=left)
    if isinstance(condition, Compare) and condition.operator in (">=", "<="):
        strict = replace(condition, operator=">" if condition.operator == ">=" else "<")
        return None if strict == part else replace(condition, operator="=") if strict in before else condition
    return condition

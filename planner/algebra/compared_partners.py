"""Joins under any condition of both sides as joins by equal values: left, full, semi, anti and mark joins.

The partners of a row depend on no more than the values that the condition reads of it. So an inner join of these values
with the right has the partners, and a row of the left looks them up by its values. A change of the right meets the
values within its bounds; rows of the left change where a value gets its first partner, or loses its last.
"""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.algebra.join_sides import Copies, Sides, least_part, sides_of
from sqlfront.planner.algebra.rewriting import NewColumns, passed
from sqlfront.planner.algebra.row_facts import Facts, matches_one_at_most, never_null, rejected
from sqlfront.planner.algebra.scalars import (
    Column,
    Compare,
    Ref,
    Scalar,
    can_fail,
    columns_of,
    conjunction,
    is_never_null,
    null,
    substitute,
    truth,
)
from sqlfront.planner.algebra.terms import Distinct, Join, Made, Map, SetOperation, Term

_WITH_LEFT_ROWS = ("left", "single", "semi", "anti", "mark")


def by_equal_values(term: Join, new: NewColumns, facts: Facts, read: frozenset[Column] | None = None) -> Term | None:
    """A join whose condition has parts that compare both sides, as one by equal values; of a full join as two branches.

    None for another join, and for marks that may be NULL. `read` are the columns that are read of the join, if known.
    """
    sides = sides_of(term.condition, term.left.columns, term.right.columns)
    if term.dependent or not sides.both:
        return None
    if term.kind == "full":
        return _branches(term, new, read)
    present = never_null(term.left, facts) | never_null(term.right, facts)
    is_known = term.kind != "mark" or is_never_null(term.condition, present)
    return _by_values(term, sides, new, facts, read) if is_known and term.kind in _WITH_LEFT_ROWS else None


def _by_values(term: Join, sides: Sides, new: NewColumns, facts: Facts, read: frozenset[Column] | None) -> Join:
    tying = [*sides.both, *(Compare(pair.operator, pair.mine, pair.theirs) for pair in sides.pairs)]
    asked = [column for column in term.left.columns if column in columns_of(*tying)]
    whole = any(map(can_fail, tying))  # It must not fail for rows that the left side has not.
    rows = Copies(new).copy(term.left if whole else least_part(term.left, frozenset(asked)))
    keys = {column: new.like(column) for column in asked}
    values = Map(rows.term, tuple(Made(key, Ref(rows.columns[column])) for column, key in keys.items()))
    refs: dict[Column, Scalar] = {column: Ref(key) for column, key in keys.items()}
    condition = conjunction([*(substitute(one, refs) for one in tying), *sides.right])
    kind = "left" if term.kind == "single" and matches_one_at_most(term, facts) else term.kind
    if kind in ("left", "single"):
        shown = [column for column in term.right.columns if read is None or column in read]
        partners: Term = Map(Join("inner", Distinct(values), term.right, condition), passed([*keys.values(), *shown]))
    else:
        partners = Distinct(Map(Join("inner", values, term.right, condition), passed(keys.values())))
    strict = never_null(term.left, facts).union(*map(rejected, tying))
    same: list[Scalar] = [
        Compare("=" if column in strict else "IS NOT DISTINCT FROM", Ref(column), Ref(key))
        for column, key in keys.items()
    ]
    if term.kind == "mark":
        same = [truth(one) for one in (*same, *sides.left)]
    else:
        same += sides.left
    return replace(term, kind=kind, right=partners, condition=conjunction(same))


def _branches(term: Join, new: NewColumns, read: frozenset[Column] | None) -> Term:
    """A full join as its left join, and the rows of the right without a partner."""
    copies, branches = Copies(new), list[Term]()
    columns = tuple(column for column in term.columns if read is None or column in read)
    for kind in ("left", "anti"):
        left, right = copies.copy(term.left), copies.copy(term.right)
        both = {**left.columns, **right.columns}
        condition = substitute(term.condition, {old: Ref(column) for old, column in both.items()})
        if kind == "left":
            rows, missing = Join("left", left.term, right.term, condition), frozenset[Column]()
        else:
            rows, missing = Join("anti", right.term, left.term, condition), frozenset(term.left.columns)
        made = ((column, null(column.type) if column in missing else Ref(both[column])) for column in columns)
        branches.append(Map(rows, tuple(Made(new.like(column), value) for column, value in made)))
    return SetOperation("union", True, branches[0], branches[1], columns)

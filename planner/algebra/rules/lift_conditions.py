"""Conditions that read outer columns, taken out of the right side of a dependent join.

Source: the simple unnesting of Neumann and Kemper, BTW 2015, section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlfront.planner.algebra.rewriting import passed
from sqlfront.planner.algebra.rules.nearest_first_rows import bounds_of
from sqlfront.planner.algebra.scalars import Column, Scalar, can_fail, columns_of, conjunction, conjuncts
from sqlfront.planner.algebra.terms import Filter, Join, Map, Term, free_columns
from sqlfront.planner.algebra.unfailing import unfailing


@dataclass(frozen=True)
class Lifted:
    """A term that reads no outer column, and the conditions that its rows are still to meet."""

    term: Term
    conditions: tuple[Scalar, ...] = ()


def lift_conditions(term: Term, outer: frozenset[Column]) -> Lifted | None:
    """A term without its conditions on outer columns, perhaps with more columns; None: more than conditions read them.

    No expression that can fail is then computed for more rows: over a condition that is lifted there is none.
    """
    if not free_columns(term) & outer:
        return Lifted(term)
    match term:
        case Filter():
            return _from_filter(term, outer)
        case Map():
            return _from_map(term, outer)
        case Join(kind="inner", dependent=False):
            sides = [lift_conditions(side, outer) for side in (term.left, term.right)]
            split = _split(term.condition, outer)
            if split is None or sides[0] is None or sides[1] is None:
                return None
            joined = replace(term, left=sides[0].term, right=sides[1].term, condition=conjunction(split[0]))
            return Lifted(joined, (*sides[0].conditions, *sides[1].conditions, *split[1]))
        case Join(kind="left" | "semi" | "anti" | "mark" | "single"):
            side = lift_conditions(term.left, outer)
            apart = not (free_columns(term.right) | columns_of(term.condition)) & outer
            if side is None or not apart or can_fail(term.condition):
                return None
            return Lifted(replace(term, left=side.term), side.conditions)
    return None


def _from_filter(term: Filter, outer: frozenset[Column]) -> Lifted | None:
    below, split = lift_conditions(term.input, outer), _split(term.condition, outer)
    if below is None or split is None:
        return None
    rest, lifted = split
    kept = Filter(below.term, conjunction(rest)) if rest else below.term
    return Lifted(kept, (*below.conditions, *lifted))


def _from_map(term: Map, outer: frozenset[Column]) -> Lifted | None:
    below = lift_conditions(term.input, outer)
    if below is None or any(columns_of(one.value) & outer or can_fail(one.value) for one in term.made):
        return None
    read = columns_of(*below.conditions) - outer - frozenset(term.columns)
    more = passed(sorted(read, key=lambda column: column.number))
    return Lifted(Map(below.term, (*term.made, *more)), below.conditions)


def _split(condition: Scalar, outer: frozenset[Column]) -> tuple[Sequence[Scalar], Sequence[Scalar]] | None:
    """The conditions without and with outer columns; None if one that can fail must stay among the others. Bounds of
    ranges are computed such that they do not overflow."""
    found = [one if not can_fail(one) else _bounded(one) for one in conjuncts(condition)]
    parts = [one for one in found if one is not None]
    if len(parts) < len(found):
        return None
    return [one for one in parts if not columns_of(one) & outer], [one for one in parts if columns_of(one) & outer]


def _bounded(one: Scalar) -> Scalar | None:
    bounds = [unfailing(bound) for bound in bounds_of(one)]
    return None if None in bounds else conjunction([bound for bound in bounds if bound is not None])

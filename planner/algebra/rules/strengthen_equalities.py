"""IS NOT DISTINCT FROM becomes = where one side is never NULL: then it is an ordinary condition of a join.

A mark keeps it, for a mark is NULL where an equality is.
"""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.algebra.rewriting import rewrite
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, never_null, rejected
from sqlfront.planner.algebra.scalars import Compare, Ref, Scalar, conjunction, conjuncts
from sqlfront.planner.algebra.terms import Filter, Join, Term, inputs_of


def strengthen_equalities(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term with equalities in the place of comparisons that would take NULLs for equal, but meet none."""

    def change(part: Term) -> Term:
        if isinstance(part, Filter) or (isinstance(part, Join) and part.kind != "mark"):
            return _strengthened(part, facts)
        return part

    return rewrite(term, change)


def _strengthened(term: Filter | Join, facts: Facts) -> Term:
    parts = conjuncts(term.condition)
    loose = [one for one in parts if isinstance(one, Compare) and one.operator == "IS NOT DISTINCT FROM"]
    if not loose:
        return term
    present = rejected(term.condition).union(*(never_null(part, facts) for part in inputs_of(term)))
    strict: dict[Scalar, Scalar] = {
        one: replace(one, operator="=")
        for one in loose
        if any(isinstance(side, Ref) and side.column in present for side in (one.left, one.right))
    }
    return replace(term, condition=conjunction([strict.get(one, one) for one in parts])) if strict else term

"""Outer joins become inner, or left, where a condition above is not true for the NULLs of a missing partner.

Also: a single join that meets one row at most is a left join; a mark that must be true is a semi join, one that must be
false and cannot be NULL is an anti join.

Source: Galindo-Legaria and Rosenthal, Outerjoin simplification and reordering, TODS 1997.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlfront.planner.algebra.rewriting import extended, projected, with_changed
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, has_at_most_one_row, matches_one_at_most, never_null
from sqlfront.planner.algebra.scalars import (
    FALSE,
    TRUE,
    Not,
    Ref,
    Scalar,
    columns_of,
    conjuncts,
    is_never_null,
    rejects_nulls,
    substitute,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Distinct,
    Filter,
    Join,
    Made,
    Map,
    Term,
    Unnest,
    Window,
    inputs_of,
)


def turn_outer_into_inner(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term with fewer outer, single and mark joins."""
    return _Turning(facts).visit(term, ())


class _Turning:
    """One run of the rule; shared terms are rewritten once, for no condition above."""

    def __init__(self, facts: Facts) -> None:
        self._facts, self._shared = facts, dict[str, Term]()

    def visit(self, term: Term, above: Sequence[Scalar]) -> Term:
        """A term of whose rows only those count that meet the conditions above, with some values of other columns."""
        match term:
            case Common():
                if term.name not in self._shared:
                    self._shared[term.name] = self.visit(term.term, ())
                return with_changed(term, (self._shared[term.name],))
            case Filter(input=input, condition=condition):
                return with_changed(term, (self.visit(input, (*above, *conjuncts(condition))),))
            case Map(input=input, made=made):
                values = {one.column: one.value for one in made}
                return with_changed(term, (self.visit(input, [substitute(one, values) for one in above]),))
            case Join():
                return self._join(term, above)
            case Aggregate(input=input, sets=None) | Distinct(input=input, on=None) | Unnest(input=input):
                return with_changed(term, (self.visit(input, above),))
            case Window(input=input, functions=functions):
                every = frozenset.intersection(*(columns_of(*_refs(one.partition)) for one in functions))
                others = frozenset(input.columns) - every
                whole = [one for one in above if not columns_of(one) & others]  # They select whole partitions.
                return with_changed(term, (self.visit(input, whole),))
        return with_changed(term, [self.visit(part, ()) for part in inputs_of(term)])

    def _join(self, term: Join, above: Sequence[Scalar]) -> Term:
        if term.mark is not None and Ref(term.mark) in above:
            return extended(self.visit(replace(term, kind="semi", mark=None), above), (Made(term.mark, TRUE),))
        if term.mark is not None and Not(Ref(term.mark)) in above and self._is_decided(term):
            return extended(self.visit(replace(term, kind="anti", mark=None), above), (Made(term.mark, FALSE),))
        turned = self._turned(term, above)
        if turned.left is not term.left:
            return projected(self.visit(turned, above), term.columns)
        met = conjuncts(turned.condition)
        inner = turned.kind == "inner"
        at_left = (*above, *(met if inner or turned.kind == "semi" else ()))
        at_right = (*(above if inner else ()), *(met if turned.kind not in ("full", "mark") else ()))
        if turned.kind == "full":
            at_left = ()
        return with_changed(turned, (self.visit(turned.left, at_left), self.visit(turned.right, at_right)))

    def _is_decided(self, term: Join) -> bool:
        """Whether the condition of a join is NULL for no pair of rows."""
        present = never_null(term.left, self._facts) | never_null(term.right, self._facts)
        return is_never_null(term.condition, present)

    def _turned(self, term: Join, above: Sequence[Scalar]) -> Join:
        """The join of another kind; a full join whose left side may be missing alone has its sides exchanged."""
        left, right = (frozenset(side.columns) for side in (term.left, term.right))
        if term.kind == "single" and (
            has_at_most_one_row(term.right, self._facts) or matches_one_at_most(term, self._facts)
        ):
            return self._turned(replace(term, kind="left"), above)
        needs_left, needs_right = (any(rejects_nulls(one, side) for one in above) for side in (left, right))
        match term.kind:
            case "left" if needs_right:
                return replace(term, kind="inner")
            case "as-of left" if needs_right:
                return replace(term, kind="as-of")
            case "full" if needs_left and needs_right:
                return replace(term, kind="inner")
            case "full" if needs_left:
                return replace(term, kind="left")
            case "full" if needs_right:
                return replace(term, kind="left", left=term.right, right=term.left)
        return term


def _refs(partition: Sequence[Scalar]) -> list[Scalar]:
    return [one for one in partition if isinstance(one, Ref)]

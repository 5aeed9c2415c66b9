"""Conditions move down to the tables as far as they may, and what two sides of an inner join must meet joins them.

A condition that can fail stays where it is. Others move below it, for it then meets fewer rows; none moves above it. A
condition on a computed column stays above the computation if that can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlfront.planner.algebra.rewriting import with_changed
from sqlfront.planner.algebra.scalars import (
    Column,
    Ref,
    Scalar,
    can_fail,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Distinct,
    Filter,
    Join,
    Map,
    SetOperation,
    Term,
    Unnest,
    Window,
    inputs_of,
)

Conditions = Sequence[Scalar]


def push_filters(term: Term) -> Term:
    """A term with each condition as near to the tables as it may be."""
    return _Pushing().visit(term, ())


class _Pushing:
    """One run of the rule; a shared term is rewritten once, and no condition moves into it."""

    def __init__(self) -> None:
        self._shared: dict[str, Term] = {}

    def visit(self, term: Term, above: Conditions) -> Term:
        """The rows of a term that meet the conditions, none of which can fail."""
        match term:
            case Common(name=name):
                if name not in self._shared:
                    self._shared[name] = self.visit(term.term, ())
                return _filtered(with_changed(term, (self._shared[name],)), above)
            case Filter(input=input, condition=condition):
                movable, fixed = _apart(conjuncts(condition), lambda one: not can_fail(one))
                return _filtered(self.visit(input, (*movable, *above)), fixed)
            case Join():
                return self._join(term, above)
            case SetOperation():
                return self._set_operation(term, above)
            case Map(made=made):
                values = {one.column: one.value for one in made}
                sure = frozenset(column for column, value in values.items() if not can_fail(value))
                below, here = _within(above, sure)
                return self._over(term, [substitute(one, values) for one in below], here)
        below, here = _within(above, _passing(term))
        if not isinstance(term, Aggregate | Distinct | Window | Unnest):
            return _filtered(with_changed(term, [self.visit(part, ()) for part in inputs_of(term)]), above)
        return self._over(term, below, here)

    def _over(self, term: Map | Aggregate | Distinct | Window | Unnest, below: Conditions, here: Conditions) -> Term:
        return _filtered(with_changed(term, (self.visit(term.input, below),)), here)

    def _join(self, term: Join, above: Conditions) -> Term:
        left, right = frozenset(term.left.columns), frozenset(term.right.columns)
        movable, fixed = _apart(conjuncts(term.condition), lambda one: not can_fail(one))
        if term.kind == "inner":
            at_left, rest = _within((*above, *movable), left)
            at_right, rest = _within(rest, right)
            here: list[Scalar] = []
        else:
            at_left, here = _within(above, left if term.kind != "full" else frozenset())
            at_right, rest = _within(movable, right if term.kind in ("left", "semi", "anti", "single") else frozenset())
            if term.kind == "semi":
                more, rest = _within(rest, left)
                at_left = [*at_left, *more]
        moved = len(rest) < len(movable) or term.kind == "inner"
        condition = conjunction([*rest, *fixed]) if moved else term.condition
        inputs = self.visit(term.left, at_left), self.visit(term.right, at_right)
        return _filtered(with_changed(replace(term, condition=condition), inputs), here)

    def _set_operation(self, term: SetOperation, above: Conditions) -> Term:
        """Both sides of any set operation meet a condition on columns whose type is theirs."""
        sides = (term.left, term.right)
        same = frozenset(
            column
            for place, column in enumerate(term.columns)
            if all(side.columns[place].type == column.type for side in sides)
        )
        below, here = _within(above, same)
        inputs = []
        for side in sides:
            values: dict[Column, Scalar] = {made: Ref(column) for made, column in zip(term.columns, side.columns)}
            inputs.append(self.visit(side, [substitute(one, values) for one in below]))
        return _filtered(with_changed(term, inputs), here)


def _passing(term: Term) -> frozenset[Column]:
    """The columns on which a condition above an operator selects whole groups, partitions or rows of its input."""
    match term:
        case Aggregate(groups=groups, sets=sets):
            return frozenset(groups).intersection(*(sets or ()))
        case Distinct(input=input, on=on):
            return frozenset(input.columns if on is None else on)
        case Window(functions=functions):
            partitions = (frozenset(one.column for one in f.partition if isinstance(one, Ref)) for f in functions)
            return frozenset.intersection(*partitions)
        case Unnest(input=input):
            return frozenset(input.columns)
    return frozenset()


def _within(conditions: Conditions, columns: frozenset[Column]) -> tuple[list[Scalar], list[Scalar]]:
    """The conditions that read some of these columns and no others, and the rest."""
    return _apart(conditions, lambda one: bool(columns) and columns_of(one) <= columns)


def _apart(conditions: Conditions, test: Callable[[Scalar], bool]) -> tuple[list[Scalar], list[Scalar]]:
    return [one for one in conditions if test(one)], [one for one in conditions if not test(one)]


def _filtered(term: Term, conditions: Conditions) -> Term:
    return Filter(term, conjunction(conditions)) if conditions else term

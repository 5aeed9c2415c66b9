"""Dependent joins become ordinary joins: a correlated subquery is computed for all outer rows at once.

Three ways, the first that is possible: the right side does not depend on the left at all; the conditions that read the
left are lifted into the join's own condition; the domain of the outer columns is pushed into the right side. Outer
dependent joins go first, so the left side of the next one reads no outer column.

A dependent join stays in three cases: a recursion reads the outer columns; an outer column holds INTERVALs in a nested
value; the left side reads the rows of a recursion (a copy of it outside of the recursion could not).

Source: Neumann and Kemper, Unnesting arbitrary queries, BTW 2015; Neumann, Improving unnesting of complex queries, BTW
2025. Cost: the domain reads the left side a second time, by a shared term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sqlfront.planner.algebra.rewriting import (
    NewColumns,
    copied,
    extended,
    passed,
    projected,
    rewrite,
    with_changed,
    with_scalars,
)
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts
from sqlfront.planner.algebra.rules.empty_groups import grouped_by_all, is_empty_known, with_empty_groups
from sqlfront.planner.algebra.rules.lift_conditions import lift_conditions
from sqlfront.planner.algebra.rules.push_domain import Pushed, PushedDomain, fails_elsewhere, read_once
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Column,
    Ref,
    Scalar,
    can_fail,
    cast,
    conjunction,
    substitute,
    truth,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Distinct,
    Filter,
    Join,
    Made,
    Map,
    Recursion,
    Recursive,
    Scan,
    Term,
    Unnest,
    Values,
    free_columns,
    inputs_of,
    walk,
)


def unnest_dependent_joins(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term without dependent joins, but for those of recursions."""
    return _Unnesting(term, facts).visit(term)


class _Unnesting:
    """One run of the rule over one query."""

    def __init__(self, term: Term, facts: Facts) -> None:
        self._new, self._shared, self._facts = NewColumns(term), dict[str, Term](), facts

    def visit(self, term: Term) -> Term:
        """A term that reads no outer column, without dependent joins."""
        if isinstance(term, Common):
            if term.name not in self._shared:
                self._shared[term.name] = self.visit(term.term)
            return replace(term, term=self._shared[term.name])
        if not isinstance(term, Join) or not term.dependent:
            return with_changed(term, [self.visit(part) for part in inputs_of(term)])
        term = replace(term, left=self.visit(term.left))
        left = frozenset(term.left.columns)
        if not free_columns(term.right) & left:
            return self.visit(replace(term, dependent=False))
        if can_fail(term.condition):
            term = self._with_condition_inside(term)
        outer = free_columns(term.right) & left
        lifted = self._lifted(term, outer)
        if lifted is not None:
            return self.visit(lifted)
        intervals = [one for one in outer if "INTERVAL" in one.type]
        if _recurs_with(term.right, outer) or any(one.type != "INTERVAL" for one in intervals):
            return term
        spelled = self._with_spelled(term, intervals) if intervals else term
        unnested = self._by_domain(spelled, free_columns(spelled.right) & frozenset(spelled.left.columns))
        return term if unnested is None else self.visit(projected(unnested, term.columns))

    def _with_spelled(self, term: Join, intervals: Sequence[Column]) -> Join:
        """A join whose right side reads intervals of the left as texts: DuckDB would compute one group for 30 days and
        1 month."""
        texts = {one: self._new.column(one.name, "VARCHAR") for one in intervals}
        left = extended(term.left, tuple(Made(text, cast(Ref(one), "VARCHAR")) for one, text in texts.items()))
        values = {one: cast(Ref(text), "INTERVAL") for one, text in texts.items()}
        right = rewrite(term.right, lambda part: with_scalars(part, lambda scalar: substitute(scalar, values)))
        return replace(term, left=left, right=right)

    def _with_condition_inside(self, term: Join) -> Join:
        """A condition that can fail is met inside the right side, so only for the pairs that the join itself has."""
        if term.kind != "mark":
            return replace(term, right=Filter(term.right, term.condition), condition=TRUE)
        met = Made(self._new.column("met", "BOOLEAN"), term.condition)
        return replace(term, right=extended(term.right, (met,)), condition=Ref(met.column))

    def _lifted(self, term: Join, outer: frozenset[Column]) -> Term | None:
        """The conditions that read outer columns, in the condition of the join."""
        lifted = lift_conditions(term.right, outer)
        if lifted is None:
            return None
        conditions = lifted.conditions
        if term.kind == "mark":
            conditions = tuple(map(truth, conditions))
        condition = conjunction([term.condition, *conditions])
        return projected(replace(term, right=lifted.term, condition=condition, dependent=False), term.columns)

    def _by_domain(self, term: Join, outer: frozenset[Column]) -> Term | None:
        """The right side computed for each row of the domain; None if it needs a copy of a recursion's rows."""
        domain = _Domain(term.left, self._new)
        steps, base = _steps_of_each_row(term)
        rows = self._extended_left(term.left, base, domain) if _has_row_for_each(term, steps) else None
        if rows is not None:
            for step in reversed(steps):
                rows = (
                    Map(rows, (*passed(term.left.columns), *step.made))
                    if isinstance(step, Map)
                    else replace(step, input=rows)
                )
            result: Term = Filter(rows, term.condition) if term.condition != TRUE else rows
        else:
            pushed = self._pushed(term.right, outer, domain)
            same = _same(outer, pushed, pushed.present and term.kind != "mark")
            condition = conjunction([same, term.condition])
            result = replace(term, left=domain.left, right=pushed.term, condition=condition, dependent=False)
        return None if domain.copies and _reads_recursion(term.left) else projected(result, term.columns)

    def _extended_left(self, left: Term, base: Term, domain: _Domain) -> Term | None:
        """The rows of the left, each with the one row that the base has for it; None if that takes more than a join."""
        match base:
            case Values(columns=columns, rows=(row,)):
                made = (Made(column, cast(value, column.type)) for column, value in zip(columns, row))
                return extended(left, made)
            case Aggregate() if is_empty_known(base):
                return self._with_group(left, base, domain)
        return None

    def _with_group(self, left: Term, aggregate: Aggregate, domain: _Domain) -> Term:
        """Each row of the left with the aggregates of its group: one join, and no domain where it is replaced."""
        outer = free_columns(aggregate) & frozenset(left.columns)
        if not outer:
            return Join("inner", left, aggregate)
        pushed = self._pushed(aggregate.input, outer, domain)
        inside = with_scalars(aggregate, pushed.inside)
        assert isinstance(inside, Aggregate)
        grouped = grouped_by_all(inside, pushed.term, pushed.by.values())
        return with_empty_groups(domain.left, grouped, _same(outer, pushed, pushed.present), self._new)

    def _pushed(self, term: Term, outer: frozenset[Column], domain: _Domain) -> Pushed:
        columns = sorted(outer, key=lambda column: column.number)
        copy = partial(domain.copy, columns)
        replaceable = self._facts.is_eager or not fails_elsewhere(term, outer)
        return PushedDomain(copy, outer, self._new, replaceable, read_once(term, outer)).push(term)


class _Domain:
    """The distinct values of columns of a left side, which is shared once a copy of them is made."""

    def __init__(self, left: Term, new: NewColumns) -> None:
        self.left, self.copies, self._new = left, 0, new
        self._common: Common | None = None

    def copy(self, outer: Sequence[Column]) -> tuple[Term, dict[Column, Column]]:
        """One more use of the distinct values, with the column of each outer column."""
        if self._common is None:
            self._common = self._shared(outer)
        self.copies += 1
        by = {column: self._new.like(column) for column in outer}
        return replace(self._common, columns=tuple(by.values())), by

    def _shared(self, outer: Sequence[Column]) -> Common:
        rows, columns = copied(self.left, self._new)
        if not isinstance(self.left, Scan):
            name = f"left {rows.columns[0].number}"
            self.left = Common(name, rows, self.left.columns)
            rows = Common(name, rows, tuple(map(self._new.like, rows.columns)))
            columns = dict(zip(self.left.columns, rows.columns))
        made = tuple(Made(self._new.like(column), Ref(columns[column])) for column in outer)
        values = Distinct(Map(rows, made))
        return Common(f"domain {made[0].column.number}", values, values.columns)


def _same(outer: frozenset[Column], pushed: Pushed, present: bool) -> Scalar:
    """Whether a row of the left has the outer columns that a row of the right was computed for."""
    ordered = sorted(outer, key=lambda column: column.number)
    return Pushed(pushed.term, {column: column for column in ordered}, present=present).same(pushed.by, present)


def _steps_of_each_row(term: Join) -> tuple[list[Map | Filter | Unnest], Term]:
    """The operators of the right side that read a row at a time, outermost first, and the term below them."""
    steps: list[Map | Filter | Unnest] = []
    below = term.right
    while isinstance(below, Map | Filter | Unnest):
        steps.append(below)
        below = below.input
    return steps, below


def _has_row_for_each(term: Join, steps: list[Map | Filter | Unnest]) -> bool:
    """Whether a join is its left side with the steps applied to it: only an inner join may lose rows in one."""
    sure = term.condition == TRUE and all(isinstance(step, Map) for step in steps)
    return term.kind == "inner" or (term.kind in ("left", "single") and sure)


def _reads_recursion(term: Term) -> bool:
    """Whether a term reads the rows of a recursion around it."""
    inside = {part.name for part in walk(term) if isinstance(part, Recursion)}
    return any(isinstance(part, Recursive) and part.name not in inside for part in walk(term))


def _recurs_with(term: Term, outer: frozenset[Column]) -> bool:
    return any(isinstance(part, Recursion) and free_columns(part) & outer for part in walk(term))

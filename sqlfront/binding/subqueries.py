"""Subqueries in expressions: each is a join of the rows that its expression is computed for, with the subquery's rows.

An expression reads the join's column. The join is put on when the expression is: below the groups for an argument of an
aggregate, above them for what is computed of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlfront.binding.environment import Environment
from sqlfront.binding.sight import Sight
from sqlfront.planner.algebra.rewriting import rewrite, with_scalars
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Compare,
    Not,
    Operator,
    Ref,
    Scalar,
    columns_of,
    conjunction,
    conjuncts,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Filter,
    Join,
    JoinKind,
    Term,
    free_columns,
    scalars_of,
    walk,
)


@dataclass(frozen=True)
class Waiting:
    """A subquery that no term has been joined with yet; the expression reads `column`."""

    kind: JoinKind
    term: Term
    column: Column
    condition: Scalar = TRUE


class Subqueries:
    """The subqueries of one block's expressions, by the columns that stand for them."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.waiting: dict[Column, Waiting] = {}

    def add(self, kind: str, node: exp.Expr, values: Sequence[Scalar], operator: Operator, sight: Sight) -> Scalar:
        """The value of a subquery: "single", "exists", "array", or whether "any" row compares with the values."""
        from sqlfront.binding.query_binder import bind

        environment = self._environment
        query = node.expressions[0] if kind == "array" else node.this
        output = bind(query, environment.inside(sight))
        new = environment.numbers.column
        if kind == "single":
            found = self._single(output.term, node)
        elif kind == "array":
            found = self._array(output.term)
        elif kind == "exists":
            found = Waiting("mark", output.term, new("exists", "BOOLEAN"))
        else:
            found = self._any(output.term, node, values, operator)
        self.waiting[found.column] = found
        environment.notes.note(("subquery", found.column), node)
        return Ref(found.column)

    def untyped(self) -> list[Scalar]:
        return [one.condition for one in self.waiting.values()]

    def scalars(self) -> list[Scalar]:
        """The expressions inside the subqueries that wait."""
        terms = [one.term for one in self.waiting.values() if free_columns(one.term)]
        return [scalar for term in terms for part in walk(term) for scalar in scalars_of(part)]

    def retype(self, known: Mapping[Scalar, Scalar]) -> None:
        self.lower(lambda scalar: known.get(scalar, scalar), conditions=True)

    def lower(self, change: Callable[[Scalar], Scalar], conditions: bool = False) -> None:
        """Change what the waiting subqueries read of the block around; only their `conditions`, if that is said."""
        for column, one in self.waiting.items():
            term = one.term
            if not conditions and free_columns(term):
                term = rewrite(term, lambda part: with_scalars(part, change))
            self.waiting[column] = replace(one, term=term, condition=change(one.condition))

    def filtered(self, term: Term, condition: Scalar) -> Term:
        """The rows of a term that meet a condition; EXISTS and IN that AND connects are semi-joins."""
        rest: list[Scalar] = []
        for part in conjuncts(condition):
            found = self._semi(part)
            if found is None:
                rest.append(part)
                continue
            kind, one = found
            del self.waiting[one.column]
            term = self.attached(term, [one.condition])
            term = _joined(kind, term, one)
            self._note(one)
        term = self.attached(term, rest)
        return Filter(term, conjunction(rest)) if rest else term

    def attached(self, term: Term, scalars: Iterable[Scalar]) -> Term:
        """A term with the columns of the subqueries that the expressions read."""
        for column in sorted(columns_of(*scalars), key=lambda one: one.number):
            one = self.waiting.pop(column, None)
            if one is None:
                continue
            outer = [Ref(free) for free in free_columns(one.term)]
            term = self.attached(term, [one.condition, *outer])
            self._note(one)
            term = _joined(one.kind, term, one)
        return term

    def _note(self, one: Waiting) -> None:
        """The join stands where the subquery does."""
        for column in one.term.columns:
            self._environment.notes.note_at(("join", column), self._environment.notes.place(("subquery", one.column)))

    def _semi(self, part: Scalar) -> tuple[JoinKind, Waiting] | None:
        is_negated = isinstance(part, Not)
        value = part.part if isinstance(part, Not) else part
        one = self.waiting.get(value.column) if isinstance(value, Ref) else None
        if one is None or one.kind != "mark" or (is_negated and one.condition != TRUE):
            return None
        return ("anti" if is_negated else "semi"), one

    def _single(self, term: Term, node: exp.Expr) -> Waiting:
        if len(term.columns) != 1:
            hint = "select one column, or compare the columns one by one"
            raise self._environment.notes.refusal("A subquery of several columns", node, "it is a row", hint)
        return Waiting("single", term, term.columns[0])

    def _array(self, term: Term) -> Waiting:
        [column] = term.columns
        made = self._environment.numbers.column("array", f"{column.type}[]")
        listed = Aggregated(made, "list({before}{0}{behind})", (Ref(column),))
        return Waiting("single", Aggregate(term, (), (listed,)), made)

    def _any(self, term: Term, node: exp.Expr, values: Sequence[Scalar], operator: Operator) -> Waiting:
        if len(term.columns) == 1 and len(values) > 1:  # (a, b) IN (SELECT (c, d) ...)
            held = ", ".join(f"{{{place}}}" for place in range(len(values)))
            kind = f"TUPLE({', '.join(value.type for value in values)})"
            values = [Call(f"row({held})", tuple(values), kind, can_fail=False)]
        compared = [Compare(operator, value, Ref(column)) for value, column in zip(values, term.columns, strict=True)]
        mark = self._environment.numbers.column("mark", "BOOLEAN")
        for one in compared:
            self._environment.notes.note(one, node)
        return Waiting("mark", term, mark, conjunction(compared))


def _joined(kind: JoinKind, left: Term, one: Waiting) -> Join:
    dependent = bool(free_columns(one.term) & frozenset(left.columns))
    mark = one.column if kind == "mark" else None
    return Join(kind, left, one.term, one.condition, dependent, mark)

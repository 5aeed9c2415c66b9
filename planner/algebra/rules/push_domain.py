"""The domain of a dependent join is pushed into its right side: what remains of it is an ordinary join.

The domain D holds the distinct values of the outer columns that the right side R reads. `PushedDomain.push(R)` computes
the rows of R for every row of D, each with the row of D that it belongs to. Each operator does its work per row of D:
an aggregate groups by D too, a window is partitioned by D, LIMIT becomes row numbers per row of D. Where a term does
not read D, D joins it, or is replaced by columns of the term that the query equates with D anyway.

Source: Neumann and Kemper, Unnesting arbitrary queries, BTW 2015, section 3 (the rules of push-down) and 3.3 (the
replacement of D); Neumann, Improving unnesting of complex queries, BTW 2025 (nested dependent joins, outermost first).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlfront.planner.algebra.rewriting import NewColumns, extended, passed, projected, with_scalars, with_values
from sqlfront.planner.algebra.rules.empty_groups import (
    grouped_by_all,
    is_empty_known,
    with_empty_groups,
    with_filtered_groups,
)
from sqlfront.planner.algebra.rules.limits import limit_each
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    IsNull,
    Not,
    Operator,
    Ref,
    Scalar,
    can_fail,
    cast,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Made,
    Map,
    SetOperation,
    Term,
    Top,
    Unnest,
    Values,
    Window,
    free_columns,
    scalars_of,
    walk,
)

WHOLE = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
)  # fmt: skip
"""Types of integers, which are compared exactly whatever their widths."""
IDENTICAL = (
    *WHOLE, "DECIMAL", "BOOLEAN", "DATE", "TIME", "TIMESTAMP", "UUID", "VARCHAR", "BLOB",
)  # fmt: skip
"""Types whose equal values are identical. FLOAT (0 and -0) and INTERVAL (a month and 30 days) are not among them."""

Equated = Mapping[Column, tuple[Scalar, Scalar]]
"""By outer column: an expression that a condition above equates with it, and that condition."""


@dataclass(frozen=True)
class Pushed:
    """A term for each row of the domain: `by` are the term's columns that hold the outer columns' values.

    `met` are conditions that each row meets, by the replacement of the domain; `present`: no value in `by` is NULL.
    """

    term: Term
    by: Mapping[Column, Column]
    met: frozenset[Scalar] = frozenset()
    present: bool = False

    def inside(self, scalar: Scalar) -> Scalar:
        """An expression that reads outer columns, over the columns of the term."""
        return substitute(scalar, {outer: Ref(column) for outer, column in self.by.items()})

    def unmet(self, condition: Scalar) -> list[Scalar]:
        """The conditions of a conjunction that are still to be met, over the columns of the term."""
        return [self.inside(one) for one in conjuncts(condition) if one not in self.met]

    def same(self, other: Mapping[Column, Column], present: bool) -> Scalar:
        """Whether rows of two terms belong to the same row of the domain."""
        word: Operator = "=" if self.present and present else "IS NOT DISTINCT FROM"
        return conjunction([Compare(word, Ref(column), Ref(other[outer])) for outer, column in self.by.items()])


class PushedDomain:
    """One domain: `domain` makes one more copy of it, with its column for each outer column.

    `replaceable`: the right side may be computed for values that the domain does not have. `once` are the outer columns
    that one condition alone reads: an integer may take the place of one of another width.
    """

    def __init__(
        self,
        domain: Callable[[], tuple[Term, dict[Column, Column]]],
        outer: frozenset[Column],
        new: NewColumns,
        replaceable: bool,
        once: frozenset[Column],
    ) -> None:
        self._domain, self._outer, self._new, self._replaceable = domain, outer, new, replaceable
        self._once = once

    def push(self, term: Term, equated: Equated | None = None) -> Pushed:
        """The rows of a term for each row of the domain."""
        equated = equated or {}
        if not self._reads(term):
            return self._crossed(term, equated)
        match term:
            case Filter():
                inner = self.push(term.input, {**equated, **self._equations(term)})
                rest = inner.unmet(term.condition)
                return replace(inner, term=Filter(inner.term, conjunction(rest)) if rest else inner.term)
            case Map():
                return self._map(term, equated)
            case Join(kind="inner", dependent=False):
                return self._inner_join(term, {**equated, **self._equations(term)})
            case Join():
                return self._join(term, equated)
            case Aggregate():
                return self._aggregate(term, equated)
            case SetOperation():
                return self._set_operation(term)
            case Values():
                return self._values(term)
            case Top():
                inner = self.push(term.input)
                top = replace(term, order=tuple(replace(one, value=inner.inside(one.value)) for one in term.order))
                return replace(inner, term=limit_each(top, inner.term, tuple(inner.by.values()), self._new))
            case Distinct() | Window() | Unnest():
                return self._by_row(term)
        raise AssertionError(f"{type(term).__name__} reads no outer column")

    def _by_row(self, term: Distinct | Window | Unnest) -> Pushed:
        """What reads each row alone, or the rows that agree in some columns."""
        inner = self.push(term.input)
        over, by = with_scalars(replace(term, input=inner.term), inner.inside), tuple(inner.by.values())
        match over:
            case Distinct(on=on) if on is not None:
                over = replace(over, on=(*on, *by))
            case Window(functions=functions):
                parts = tuple(map(Ref, by))
                apart = tuple(replace(one, partition=(*one.partition, *parts)) for one in functions)
                over = replace(over, functions=apart)
        return replace(inner, term=over)

    def _reads(self, term: Term) -> bool:
        return bool(free_columns(term) & self._outer)

    def _crossed(self, term: Term, equated: Equated) -> Pushed:
        """A term that reads no outer column, with each row of the domain."""
        if not self._is_replaced(term, equated):
            domain, by = self._domain()
            return Pushed(Join("inner", term, domain), by)
        ordered = sorted(self._outer, key=lambda one: one.number)
        by = {outer: self._new.column(outer.name, equated[outer][0].type) for outer in ordered}
        known = conjunction([Not(IsNull(equated[outer][0])) for outer in by])
        made = (Made(column, equated[outer][0]) for outer, column in by.items())
        met = frozenset(equated[outer][1] for outer in by)
        return Pushed(extended(Filter(term, known), made), by, met, present=True)

    def _is_replaced(self, term: Term, equated: Equated) -> bool:
        columns = frozenset(term.columns)
        return all(outer in equated and columns_of(equated[outer][0]) <= columns for outer in self._outer)

    def _equations(self, term: Filter | Join) -> Equated:
        """The equalities of outer columns with expressions that may replace them."""
        found: dict[Column, tuple[Scalar, Scalar]] = {}
        for one in conjuncts(term.condition) if self._replaceable else ():
            if isinstance(one, Compare) and one.operator == "=":
                for outer, value in ((one.left, one.right), (one.right, one.left)):
                    if isinstance(outer, Ref) and outer.column in self._outer and self._may_replace(outer, value):
                        found.setdefault(outer.column, (value, one))
        return found

    def _may_replace(self, outer: Ref, value: Scalar) -> bool:
        columns = columns_of(value)
        identical = outer.type == value.type and outer.type.startswith(IDENTICAL) and "[" not in outer.type
        whole = outer.column in self._once and outer.type in WHOLE and value.type in WHOLE
        return (identical or whole) and bool(columns) and not columns & self._outer and not can_fail(value)

    def _map(self, term: Map, equated: Equated) -> Pushed:
        values = {one.column: one.value for one in term.made if not can_fail(one.value)}
        below = {
            outer: (substitute(value, values), condition)
            for outer, (value, condition) in equated.items()
            if columns_of(value) <= values.keys() and not columns_of(substitute(value, values)) & self._outer
        }
        inner = self.push(term.input, below)
        made = tuple(replace(one, value=inner.inside(one.value)) for one in term.made)
        return replace(inner, term=Map(inner.term, (*made, *passed(inner.by.values()))))

    def _inner_join(self, term: Join, equated: Equated) -> Pushed:
        """Only the sides that read the domain are computed per row of it."""
        reads_left, reads_right = self._reads(term.left), self._reads(term.right)
        if reads_left and reads_right:
            return self._both(term, self.push(term.left, equated), self.push(term.right, equated))
        at_right = reads_right or (not reads_left and self._is_replaced(term.right, equated))
        side = self.push(term.right if at_right else term.left, equated)
        left, right = (term.left, side.term) if at_right else (side.term, term.right)
        return replace(side, term=Join("inner", left, right, conjunction(side.unmet(term.condition))))

    def _join(self, term: Join, equated: Equated) -> Pushed:
        """Every other join is made of the rows of its left side; a full join of those of both."""
        left = self.push(term.left, equated if term.kind != "full" else None)
        if term.dependent:
            values: dict[Column, Scalar] = {outer: Ref(column) for outer, column in left.by.items()}
            condition, right = left.inside(term.condition), with_values(term.right, values)
            return replace(left, term=replace(term, left=left.term, right=right, condition=condition))
        if term.kind == "full" or self._reads(term.right):
            return self._both(term, left, self.push(term.right))
        return replace(left, term=replace(term, left=left.term, condition=left.inside(term.condition)))

    def _both(self, term: Join, left: Pushed, right: Pushed) -> Pushed:
        """A join of two sides computed per row of the domain; an as-of join takes its last condition for nearness."""
        met = left.met | right.met if term.kind == "inner" else left.met
        rest = replace(left, met=met).unmet(term.condition)
        condition = conjunction([left.same(right.by, right.present), *rest])
        joined = replace(term, left=left.term, right=right.term, condition=condition)
        if term.kind != "full":
            return replace(left, term=joined, met=met)
        by = {outer: self._new.like(outer) for outer in left.by}
        values = (
            Made(by[outer], Call("coalesce({0}, {1})", (Ref(one), Ref(right.by[outer])), one.type, can_fail=False))
            for outer, one in left.by.items()
        )
        return Pushed(extended(joined, values), by)

    def _aggregate(self, term: Aggregate, equated: Equated) -> Pushed:
        if term.groups and (term.sets is None or all(term.sets)):
            every = frozenset(term.groups).intersection(*(term.sets or ()))
            inner = self.push(term.input, {outer: one for outer, one in equated.items() if columns_of(one[0]) <= every})
            return replace(inner, term=grouped_by_all(_inside(term, inner), inner.term, inner.by.values()))
        inner = self.push(term.input)
        term = _inside(term, inner)
        domain, by = self._domain()
        same = Pushed(domain, by, present=inner.present).same(inner.by, inner.present)
        if is_empty_known(term):
            grouped = grouped_by_all(term, inner.term, inner.by.values())
            return Pushed(with_empty_groups(domain, grouped, same, self._new), by)
        return Pushed(with_filtered_groups(term, domain, by.values(), inner.term, same, self._new), by)

    def _set_operation(self, term: SetOperation) -> Pushed:
        left, right = self.push(term.left), self.push(term.right)
        by = {outer: self._new.like(outer) for outer in left.by}
        first = projected(left.term, (*term.left.columns, *(left.by[outer] for outer in by)))
        second = projected(right.term, (*term.right.columns, *(right.by[outer] for outer in by)))
        operation = replace(term, left=first, right=second, columns=(*term.columns, *by.values()))
        return Pushed(operation, by, present=left.present and right.present)

    def _values(self, term: Values) -> Pushed:
        """Each row of expressions is a Map over the domain; several rows are a union of such."""
        rows = [self._values_row(term, row) for row in term.rows]
        while len(rows) > 1:
            first, second, *rest = rows
            by = {outer: self._new.like(outer) for outer in first.by}
            made = term.columns if not rest else tuple(map(self._new.like, term.columns))
            rows = [Pushed(SetOperation("union", True, first.term, second.term, (*made, *by.values())), by), *rest]
        return rows[0]

    def _values_row(self, term: Values, row: tuple[Scalar, ...]) -> Pushed:
        domain, by = self._domain()
        pushed = Pushed(domain, by)
        columns = term.columns if len(term.rows) == 1 else tuple(map(self._new.like, term.columns))
        made = (Made(column, cast(pushed.inside(value), column.type)) for column, value in zip(columns, row))
        return replace(pushed, term=Map(domain, (*made, *passed(by.values()))))


def fails_elsewhere(term: Term, outer: frozenset[Column]) -> bool:
    """Whether a part of a term could fail for values of outer columns that no outer row has."""
    parts = (part for part in walk(term) if free_columns(part) & outer)
    return any(can_fail(scalar) for part in parts for scalar in scalars_of(part))


def read_once(term: Term, outer: frozenset[Column]) -> frozenset[Column]:
    """The outer columns that one condition of a term alone reads; none where rows of several terms share columns."""
    if any(isinstance(part, SetOperation) or (isinstance(part, Join) and part.kind == "full") for part in walk(term)):
        return frozenset()
    parts = [one for part in walk(term) for scalar in scalars_of(part) for one in conjuncts(scalar)]
    return frozenset(column for column in outer if sum(column in columns_of(one) for one in parts) == 1)


def _inside(term: Aggregate, inner: Pushed) -> Aggregate:
    changed = with_scalars(term, inner.inside)
    assert isinstance(changed, Aggregate)
    return changed

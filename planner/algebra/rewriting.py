"""Tools of rewrite rules: new columns, changed expressions, copies of terms, shared terms rewritten once.

A rule keeps the columns of the terms that it rewrites. Each shared term (Common) is rewritten once, however often it is
used, so all its uses stay equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Protocol

from sqlfront.planner.algebra.scalars import Column, Ref, Scalar, substitute
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Common,
    Distinct,
    Filter,
    Join,
    Made,
    Map,
    Recursion,
    Recursive,
    Scan,
    SetOperation,
    Sort,
    Term,
    Top,
    Unnest,
    Values,
    Window,
    Windowed,
    inputs_of,
    with_inputs,
)


class ColumnSource(Protocol):
    """What makes columns."""

    def like(self, column: Column) -> Column:
        """A new column with the name and type of another."""
        ...


class NewColumns:
    """A source of columns whose numbers no column of the given terms has."""

    def __init__(self, *terms: Term) -> None:
        used = (column.number for term in terms for part in walk_once(term) for column in _all_columns(part))
        self._last = max(used, default=0)

    def column(self, name: str, type: str) -> Column:
        self._last += 1
        return Column(self._last, name, type)

    def like(self, column: Column) -> Column:
        """A new column with the name and type of another."""
        return self.column(column.name, column.type)


def walk_once(term: Term) -> Iterator[Term]:
    """A term and all that it reads, innermost first; a shared term once, before its uses."""
    seen: set[str] = set()

    def visit(part: Term) -> Iterator[Term]:
        if isinstance(part, Common):
            if part.name in seen:
                return iter((part,))
            seen.add(part.name)
        return chain(*map(visit, inputs_of(part)), (part,))

    return visit(term)


def rewrite(term: Term, change: Callable[[Term], Term]) -> Term:
    """A term with each part replaced by `change(part)`, innermost first; a shared term is changed once."""
    shared: dict[str, Term] = {}

    def visit(part: Term) -> Term:
        if isinstance(part, Common):
            if part.name not in shared:
                shared[part.name] = visit(part.term)
            return change(with_changed(part, (shared[part.name],)))
        return change(with_changed(part, [visit(one) for one in inputs_of(part)]))

    return visit(term)


def with_changed(term: Term, inputs: Sequence[Term]) -> Term:
    """A term over other inputs; the very same term where no input differs."""
    return term if all(a is b for a, b in zip(inputs, inputs_of(term))) else with_inputs(term, inputs)


def with_scalars(term: Term, change: Callable[[Scalar], Scalar]) -> Term:
    """A term with each expression of its own operator changed."""
    match term:
        case Filter(condition=condition):
            return replace(term, condition=change(condition))
        case Join(condition=condition, order=order):
            return replace(term, condition=change(condition), order=_sorts(order, change))
        case Values(rows=rows):
            return replace(term, rows=tuple(tuple(map(change, row)) for row in rows))
        case Map(made=made):
            return replace(term, made=_made(made, change))
        case Unnest(elements=made):
            return replace(term, elements=_made(made, change))
        case Aggregate(aggregates=aggregates):
            return replace(term, aggregates=tuple(_aggregated(one, change) for one in aggregates))
        case Distinct(order=order):
            return replace(term, order=_sorts(order, change))
        case Window(functions=functions):
            return replace(term, functions=tuple(_windowed(one, change) for one in functions))
        case Top(order=order):
            return replace(term, order=_sorts(order, change))
    return term


def with_values(term: Term, values: Mapping[Column, Scalar]) -> Term:
    """A term in which columns from outside of it are replaced, in it and in all that it reads."""
    if not values:
        return term
    return rewrite(term, lambda part: with_scalars(part, lambda scalar: substitute(scalar, values)))


def copied(term: Term, new: ColumnSource) -> tuple[Term, dict[Column, Column]]:
    """The same rows in new columns, and the new column of each old one; a shared term is used once more."""
    columns: dict[Column, Column] = {}
    refs: dict[Column, Scalar] = {}

    def renew(column: Column) -> Column:
        renewed = columns.setdefault(column, new.like(column))
        refs[column] = Ref(renewed)
        return renewed

    def visit(part: Term) -> Term:
        inputs = inputs_of(part) if not isinstance(part, Common) else ()
        over = with_changed(part, [visit(one) for one in inputs]) if inputs else part
        return _recolumned(with_scalars(over, lambda scalar: substitute(scalar, refs)), renew)

    return visit(term), columns


def extended(term: Term, made: Iterable[Made]) -> Map:
    """A term with more columns."""
    return Map(term, (*passed(term.columns), *made))


def projected(term: Term, columns: Sequence[Column]) -> Term:
    """A term with these of its columns alone, in this order."""
    return term if term.columns == tuple(columns) else Map(term, passed(columns))


def passed(columns: Iterable[Column]) -> tuple[Made, ...]:
    """Columns that go on unchanged."""
    return tuple(Made(column, Ref(column)) for column in columns)


def _all_columns(term: Term) -> Iterator[Column]:
    """The columns of a term that none of its inputs has, and perhaps others of its own."""
    match term:
        case Filter() | Join(mark=None):
            return
    yield from term.columns
    match term:
        case Scan(read=read):
            yield from (column for _, column in read)
        case Recursion(base=base):
            yield from base.columns


def _recolumned(term: Term, renew: Callable[[Column], Column]) -> Term:
    """A term whose own operator makes and names the renewed columns."""
    match term:
        case Scan(read=read):
            return replace(term, read=tuple((name, renew(column)) for name, column in read))
        case Values(columns=columns) | SetOperation(columns=columns) | Recursive(columns=columns):
            return replace(term, columns=tuple(map(renew, columns)))
        case Common(columns=columns):
            return replace(term, columns=tuple(map(renew, columns)))
        case Recursion(columns=columns, keys=keys):
            return replace(term, columns=tuple(map(renew, columns)), keys=tuple(map(renew, keys)))
        case Map(made=made):
            return replace(term, made=tuple(replace(one, column=renew(one.column)) for one in made))
        case Join(mark=mark) if mark is not None:
            return replace(term, mark=renew(mark))
        case Aggregate():
            return replace(
                term,
                groups=tuple(map(renew, term.groups)),
                aggregates=tuple(replace(one, column=renew(one.column)) for one in term.aggregates),
                sets=None if term.sets is None else tuple(frozenset(map(renew, one)) for one in term.sets),
                grouping=tuple((renew(column), tuple(map(renew, of))) for column, of in term.grouping),
            )
        case Distinct(on=on) if on is not None:
            return replace(term, on=tuple(map(renew, on)))
        case Window(functions=functions):
            return replace(term, functions=tuple(replace(one, column=renew(one.column)) for one in functions))
        case Unnest(elements=made, position=position):
            elements = tuple(replace(one, column=renew(one.column)) for one in made)
            return replace(term, elements=elements, position=None if position is None else renew(position))
    return term


def _made(made: tuple[Made, ...], change: Callable[[Scalar], Scalar]) -> tuple[Made, ...]:
    return tuple(replace(one, value=change(one.value)) for one in made)


def _sorts(order: tuple[Sort, ...], change: Callable[[Scalar], Scalar]) -> tuple[Sort, ...]:
    return tuple(replace(item, value=change(item.value)) for item in order)


def _aggregated(one: Aggregated, change: Callable[[Scalar], Scalar]) -> Aggregated:
    arguments, order = tuple(map(change, one.arguments)), _sorts(one.order, change)
    return replace(one, arguments=arguments, order=order, filter=change(one.filter))


def _windowed(one: Windowed, change: Callable[[Scalar], Scalar]) -> Windowed:
    return replace(
        one,
        arguments=tuple(map(change, one.arguments)),
        partition=tuple(map(change, one.partition)),
        order=_sorts(one.order, change),
        filter=change(one.filter),
        argument_order=_sorts(one.argument_order, change),
    )

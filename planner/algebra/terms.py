"""The terms of the relational algebra: what a query computes, operator by operator.

A term is a bag of rows over `columns`. Terms are frozen values; a rule makes a new term. A column's number is unique in
a query, so no operator renames: an operator that computes a value gives it a new column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from sqlfront.planner.algebra.scalars import TRUE, Column, Scalar, columns_of

JoinKind = Literal["inner", "left", "full", "semi", "anti", "mark", "single", "as-of", "as-of left"]
KEEPS_LEFT_ALONE = ("semi", "anti")


@dataclass(frozen=True)
class Sort:
    """One item of an ORDER BY, with nothing left open."""

    value: Scalar
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Made:
    """A column and the expression that computes it."""

    column: Column
    value: Scalar


@dataclass(frozen=True)
class Aggregated:
    """A column and the aggregate that computes it: `form` is DuckDB SQL with {0}, {1}, ... for the arguments."""

    column: Column
    form: str
    arguments: tuple[Scalar, ...] = ()
    distinct: bool = False
    order: tuple[Sort, ...] = ()
    filter: Scalar = TRUE


@dataclass(frozen=True)
class Windowed:
    """A column and the window function that computes it; `frame` is DuckDB SQL, of constants alone."""

    column: Column
    form: str
    arguments: tuple[Scalar, ...] = ()
    partition: tuple[Scalar, ...] = ()
    order: tuple[Sort, ...] = ()
    frame: str = ""
    filter: Scalar = TRUE
    distinct: bool = False
    argument_order: tuple[Sort, ...] = ()
    written: int = field(default=-1, compare=False)


@dataclass(frozen=True)
class Scan:
    """The rows of a table or view: `read` are the columns read, by their names there; `alias` is for people."""

    table: tuple[str, ...]
    read: tuple[tuple[str, Column], ...]
    alias: str = field(default="", compare=False)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for _, column in self.read)


@dataclass(frozen=True)
class Values:
    """Rows of expressions without columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Scalar, ...], ...]


ONE_ROW = Values((), ((),))
"""The row without columns that a block without FROM reads."""


@dataclass(frozen=True)
class Filter:
    """The rows for which a condition is true."""

    input: Term
    condition: Scalar

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True)
class Map:
    """For each row a row of computed values; a column of the input that goes on unchanged is made of itself."""

    input: Term
    made: tuple[Made, ...]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(one.column for one in self.made)


@dataclass(frozen=True)
class Join:
    """Pairs of rows that meet a condition.

    kind        rows
    inner       all such pairs
    left        and rows of the left without a partner, with NULLs; full: of either side
    semi, anti  rows of the left with, without a partner
    mark        rows of the left, and `mark`: true with a partner, else NULL if a condition is NULL, else false
    single      as left; a second partner is an error
    as-of       of each row of the left, the first `count` partners in `order`, else by the condition's last inequality
    A `dependent` join computes its right side anew for each row of the left, whose columns the right side may read.
    """

    kind: JoinKind
    left: Term
    right: Term
    condition: Scalar = TRUE
    dependent: bool = False
    mark: Column | None = None
    order: tuple[Sort, ...] = ()
    count: int = 1

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        if self.kind in KEEPS_LEFT_ALONE:
            return self.left.columns
        if self.mark is not None:
            return (*self.left.columns, self.mark)
        return (*self.left.columns, *self.right.columns)


@dataclass(frozen=True)
class Aggregate:
    """One row for each group: its columns, and aggregates. Without `groups` there is one row, over no rows too.

    `sets` are the grouping sets, each some of `groups`; None: the one with all. `grouping` has the bits of GROUPING().
    """

    input: Term
    groups: tuple[Column, ...]
    aggregates: tuple[Aggregated, ...]
    sets: tuple[frozenset[Column], ...] | None = None
    grouping: tuple[tuple[Column, tuple[Column, ...]], ...] = ()

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        made = (*(one.column for one in self.aggregates), *(column for column, _ in self.grouping))
        return (*self.groups, *made)


@dataclass(frozen=True)
class Distinct:
    """Each row once; with `on` the first row, by `order`, of those that agree in these columns."""

    input: Term
    on: tuple[Column, ...] | None = None
    order: tuple[Sort, ...] = ()

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT of two inputs, column by column; `all` counts copies."""

    kind: Literal["union", "intersect", "except"]
    all: bool
    left: Term
    right: Term
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Window:
    """Each row with values of window functions."""

    input: Term
    functions: tuple[Windowed, ...]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return (*self.input.columns, *(one.column for one in self.functions))


@dataclass(frozen=True)
class Top:
    """The rows from number `offset` on, at most `limit` (None: all), in an order; `percent` of them. Expressions of
    constants. `written` tells, here and of a window function, where the order is written: its number among them."""

    input: Term
    order: tuple[Sort, ...]
    limit: Scalar | None = None
    offset: Scalar | None = None
    percent: bool = False
    written: int = field(default=-1, compare=False)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True)
class Unnest:
    """Each row once for each element of a list, with the element; lists side by side are filled up with NULLs.

    `position` numbers the elements from 1. `outer`: a row whose lists are all empty or NULL is there once.
    """

    input: Term
    elements: tuple[Made, ...]
    position: Column | None = None
    outer: bool = False

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        made = (*(one.column for one in self.elements), *((self.position,) if self.position is not None else ()))
        return (*self.input.columns, *made)


@dataclass(frozen=True)
class Recursion:
    """`base`, and what `step` makes of the rows of the step before (Recursive of the same name) until it makes none.

    `all` keeps copies; with `keys` a row takes the place of the one with the same key (USING KEY).
    """

    name: str
    base: Term
    step: Term
    columns: tuple[Column, ...]
    all: bool
    keys: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Recursive:
    """Inside a step: the rows of the step before; with `whole`, all rows so far."""

    name: str
    columns: tuple[Column, ...]
    whole: bool = False


@dataclass(frozen=True)
class Common:
    """A term that is used in several places, one copy of which is kept: each use has columns of its own."""

    name: str
    term: Term = field(repr=False)
    columns: tuple[Column, ...]


Term = (
    Scan | Values | Filter | Map | Join | Aggregate | Distinct | SetOperation | Window | Top | Unnest | Recursion
    | Recursive | Common
)  # fmt: skip


def inputs_of(term: Term) -> tuple[Term, ...]:
    """The terms that a term reads; the shared term of Common is one."""
    match term:
        case Join(left=left, right=right) | SetOperation(left=left, right=right):
            return left, right
        case Recursion(base=base, step=step):
            return base, step
        case Common(term=shared):
            return (shared,)
        case Scan() | Values() | Recursive():
            return ()
    return (term.input,)


def with_inputs(term: Term, inputs: Sequence[Term]) -> Term:
    """The same operator over other inputs, as many as it has."""
    match term:
        case Join() | SetOperation():
            return replace(term, left=inputs[0], right=inputs[1])
        case Recursion():
            return replace(term, base=inputs[0], step=inputs[1])
        case Common():
            return replace(term, term=inputs[0])
        case Scan() | Values() | Recursive():
            return term
    return replace(term, input=inputs[0])


def scalars_of(term: Term) -> Iterator[Scalar]:
    """The expressions of a term's own operator, not those of its inputs."""
    match term:
        case Filter(condition=condition):
            yield condition
        case Join(condition=condition, order=order):
            yield from (condition, *(item.value for item in order))
        case Values(rows=rows):
            for row in rows:
                yield from row
        case Map(made=made) | Unnest(elements=made):
            yield from (one.value for one in made)
        case Aggregate(aggregates=aggregates):
            for one in aggregates:
                yield from (*one.arguments, *(item.value for item in one.order), one.filter)
        case Distinct(order=order):
            yield from (item.value for item in order)
        case Window(functions=functions):
            for function in functions:
                items = (*function.order, *function.argument_order)
                yield from (*function.arguments, *function.partition, function.filter, *(item.value for item in items))
        case Top(order=order, limit=limit, offset=offset):
            yield from (item.value for item in order)
            yield from (bound for bound in (limit, offset) if bound is not None)


def walk(term: Term) -> Iterator[Term]:
    """A term and all that it reads, outermost first; a shared term once for each use."""
    waiting = [term]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(inputs_of(found))


def free_columns(term: Term) -> frozenset[Column]:
    """The columns that a term reads and that none of its inputs has: those of a dependent join around it."""
    read = columns_of(*scalars_of(term)) | _grouped(term)
    for part in inputs_of(term):
        read |= free_columns(part)
    bound = frozenset(column for part in inputs_of(term) for column in part.columns)
    return read - bound


def transform(term: Term, change: Callable[[Term], Term]) -> Term:
    """A term with each part replaced by `change(part)`, innermost first."""
    inputs = inputs_of(term)
    changed = tuple(transform(part, change) for part in inputs)
    return change(term if all(a is b for a, b in zip(changed, inputs)) else with_inputs(term, changed))


def _grouped(term: Term) -> frozenset[Column]:
    """The columns that an operator names without an expression."""
    match term:
        case Aggregate(groups=groups):
            return frozenset(groups)
        case Distinct(on=on) if on is not None:
            return frozenset(on)
    return frozenset()

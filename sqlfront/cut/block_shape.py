"""The shape of a block: what of a term its Definition computes itself, and the term of the join below that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlfront.planner.algebra.first_of_groups import FirstRows, first_rows
from sqlfront.planner.algebra.row_facts import Facts, keys_of
from sqlfront.planner.algebra.scalars import (
    Column,
    Compare,
    Constant,
    Ref,
    Scalar,
    columns_of,
    conjunction,
    substitute,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Distinct,
    Filter,
    Map,
    SetOperation,
    Sort,
    Term,
    Top,
    Window,
    Windowed,
)
from sqlfront.planner.model.query import Mode
from sqlfront.storage.codecs.order import is_orderable


@dataclass(frozen=True)
class PulledRows:
    """Window functions of a block, over rows with these columns."""

    functions: tuple[Windowed, ...]
    columns: tuple[Column, ...]


@dataclass
class Shape:
    """A block: its `items`, the output columns first, over the columns of `core`, or of its groups and aggregates.

    `orders` are those of its rows, over the same columns; the first is that of `top`, or of the query. `windows` are
    window functions that are computed when the view is read; `items`, `orders` and `having` may read their columns.
    `is_whole`: the block is the query's, not one inside.
    """

    core: Term
    items: list[Scalar]
    mode: Mode = "bag"
    orders: list[list[Sort]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    groups: tuple[Column, ...] = ()
    aggregates: tuple[Aggregated, ...] = ()
    having: Scalar | None = None
    top: Top | None = None
    first: FirstRows | None = None
    scalar: bool = False
    boolean: bool = False
    windows: PulledRows | None = None
    is_whole: bool = False

    @property
    def read(self) -> frozenset[Column]:
        """The columns of the core that the block reads."""
        numbering = () if self.first is None else (self.first.numbering,)
        made = (*self.aggregates, *numbering)
        values = [*self.items, *(one.value for order in self.orders for one in order)]
        values += [value for one in made for value in (*one.arguments, one.filter, *(item.value for item in one.order))]
        values += [value for one in numbering for value in one.partition]
        values += [] if self.having is None else [self.having]
        if self.windows is not None:
            return frozenset(self.windows.columns)
        return columns_of(*values) | frozenset(self.groups)

    def substitute(self, values: dict[Column, Scalar]) -> None:
        """Put computed columns' values in their places."""
        self.items = [substitute(value, values) for value in self.items]
        self.orders = [[replace(one, value=substitute(one.value, values)) for one in order] for order in self.orders]
        if self.first is not None:
            self.first = replace(self.first, numbering=_substituted(self.first, values))


def shape_of(term: Term, outputs: int, more: Sequence[Sequence[Sort]] | None = None) -> Shape:
    """The shape of a term that puts out its first columns. The term of a whole query has `more` orders of its rows; for
    a block inside of a query `more` is None."""
    orders = [list(order) for order in more or ()]
    shape = Shape(term, [Ref(column) for column in term.columns[:outputs]], orders=orders, is_whole=more is not None)
    while (below := _below(shape)) is not None:
        shape.core = below
    return shape


def with_numbers(shape: Shape, first: FirstRows) -> Shape:
    """A block of first rows as one of rows with their numbers, filtered."""
    number = Ref(first.numbering.column)
    bounds: list[Scalar] = [Compare(">", number, Constant(str(first.offset), "INTEGER"))] if first.offset else []
    if first.rows is not None:
        bounds.append(Compare("<=", number, Constant(str(first.offset + first.rows), "INTEGER")))
    core = Filter(Window(first.input, (first.numbering,)), conjunction(bounds))
    return replace(shape, core=core, first=None, orders=shape.orders[1:], labels=shape.labels[1:])


def has_distinct_rows(shape: Shape, facts: Facts) -> bool:
    """Whether a block has each row once: by DISTINCT, or as rows in no order that show a key of theirs."""
    if shape.mode == "set":
        return True
    if shape.mode != "bag" or shape.orders or shape.first is not None:
        return False
    shown = columns_of(*(item for item in shape.items if isinstance(item, Ref)))
    return any(key <= shown for key in keys_of(shape.core, facts))


def _below(shape: Shape) -> Term | None:
    """Take the outermost operator of the core into the shape; the term below it. None if it is the join's."""
    term = shape.core
    if shape.mode == "group":  # What computes its groups is the join's.
        return None
    match term:
        case Map(input=input, made=made):
            shape.substitute({one.column: one.value for one in made if one.value != Ref(one.column)})
            return input
        case Top() if shape.top is None and shape.first is None and shape.mode == "bag":
            if term.limit is not None or term.offset is not None:
                shape.top = term
            shape.orders.insert(0, list(term.order))
            shape.labels.append(term.written)
            return term.input
        case SetOperation(kind="union", all=False) if shape.mode == "bag" and shape.first is None:
            shape.core = Distinct(replace(term, all=True))
            return _below(shape)
        case Distinct(on=None) if shape.mode == "bag" and shape.first is None and _puts_out(shape, term):
            shape.mode = "set"
            return term.input
        case Filter(input=Aggregate(sets=None) as aggregate, condition=condition) if _is_open(shape):
            shape.having = condition
            return _grouped(shape, aggregate)
        case Aggregate(sets=None) if _is_open(shape):
            return _grouped(shape, term)
        case Filter() if _is_open(shape) and shape.top is None and not shape.orders:
            first = first_rows(term)
            if first is None or first.rest or any(first.numbering.column in columns_of(one) for one in shape.items):
                return None
            shape.first = first
            shape.orders.insert(0, list(first.numbering.order))
            shape.labels.append(first.numbering.written)
            return first.input
    return None


def _is_open(shape: Shape) -> bool:
    """Whether the operator may group: nothing above it is DISTINCT."""
    return shape.mode == "bag"


def _grouped(shape: Shape, term: Aggregate) -> Term:
    shape.mode, shape.groups, shape.aggregates = "group", term.groups, term.aggregates
    shape.scalar = not term.groups
    return term.input


def _puts_out(shape: Shape, term: Distinct) -> bool:
    """Whether the items are the distinct columns, each at least once, and nothing else is read of them."""
    shown = [item.column for item in shape.items if isinstance(item, Ref)]
    return len(shown) == len(shape.items) and set(shown) == set(term.columns)


def _substituted(first: FirstRows, values: dict[Column, Scalar]) -> Windowed:
    one = first.numbering
    partition = tuple(substitute(value, values) for value in one.partition)
    return replace(one, partition=partition)


# Groups as rows in an order: ORDER BY ... LIMIT, or a row number, over GROUP BY.


def groups_below(shape: Shape) -> Shape | None:
    """The groups that a block of first rows puts in order, as a block; None if their order cannot be kept.

    Its columns are the groups' and the aggregates that the rows and the order read. `rank()` and `dense_rank()` keep
    rows that tie, behind which no ranked tree stops.
    """
    numbered = shape.first is not None and shape.first.name == "row_number"
    if not shape.groups or not (numbered or shape.top is not None):
        return None
    values = _values(shape)
    if not all(is_orderable(value.type) for value in values):
        return None
    read = columns_of(*values)
    aggregates = tuple(one for one in shape.aggregates if one.column in read or shape.having is not None)
    columns = [*shape.groups, *(one.column for one in aggregates if one.column in read)]
    items: list[Scalar] = list(map(Ref, columns))
    return replace(shape, items=items, orders=[], labels=[], top=None, first=None, aggregates=aggregates)


def over_groups(shape: Shape) -> Shape:
    """The block of first rows over the view of its groups: its join has one atom, with the groups' columns."""
    return replace(shape, mode="bag", groups=(), aggregates=(), having=None)


def group_columns(shape: Shape) -> list[Column]:
    """The columns of a block of groups."""
    return [item.column for item in shape.items if isinstance(item, Ref)]


def _values(shape: Shape) -> list[Scalar]:
    partition = shape.first.numbering.partition if shape.first is not None else ()
    return [*shape.items, *(one.value for order in shape.orders for one in order), *partition]

"""First rows of groups: ORDER BY ... LIMIT, or a row number, over GROUP BY as an order of a view of the groups."""

from __future__ import annotations

from dataclasses import replace

from sqlfront.cut.block_shape import Shape
from sqlfront.planner.algebra.scalars import Column, Ref, Scalar, columns_of
from sqlfront.storage.codecs.order import is_orderable


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

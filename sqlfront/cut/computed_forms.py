"""Other forms of a block that has no native form: as a sum of joins, computed row by row, or group by group.

A sum of joins: its condition is an OR of ranges. Row by row: its conditions or its expressions are columns of a block
below, which DuckDB computes for the changed rows of the join: O(change of the join). Group by group: its groups come
from DuckDB: O(rows of the touched groups).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.cut.block_shape import Shape, with_numbers
from sqlfront.cut.computed_conditions import has_computed_conditions, with_computed_conditions
from sqlfront.cut.computed_groups import in_touched_groups
from sqlfront.cut.signed_parts import signed_parts
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Column,
    Ref,
    Scalar,
    columns_of,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Filter,
    Join,
    Made,
    Map,
    Sort,
    Term,
    Window,
    walk,
)

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

Form = Callable[[], Shape]


def computed_forms(shape: Shape, blocks: Blocks) -> Iterator[Form]:
    """The forms of a block, the cheapest first. A form derives the blocks that it reads when it is called."""
    joins = any(isinstance(part, Join) for part in walk(shape.core))
    yield from (form for form, _ in signed_parts(shape, blocks))
    if has_computed_conditions(shape.core):
        yield lambda: replace(shape, core=with_computed_conditions(shape.core, blocks))
    if shape.mode != "bag" and joins:
        yield lambda: _row_by_row(shape, blocks)
    if shape.mode == "group":
        yield lambda: _in_groups(shape, blocks)
    elif shape.first is not None:
        yield lambda: _numbered(shape, blocks)
    elif has_windows(shape):
        yield lambda: _with_numbers(shape, blocks)


def has_windows(shape: Shape) -> bool:
    """Whether window functions are below a block."""
    return any(isinstance(part, Window) for part in walk(shape.core))


def _row_by_row(shape: Shape, blocks: Blocks) -> Shape:
    """The block over a block that computes its expressions."""
    made: dict[Scalar, Column] = {}

    def column(value: Scalar) -> Scalar:
        if not columns_of(value):
            return value
        if value not in made:
            made[value] = _named(value, blocks)
        return Ref(made[value])

    for group in shape.groups:
        made[Ref(group)] = group
    if shape.mode == "group":
        aggregates = tuple(_over(one, column) for one in shape.aggregates)
        found = replace(shape, aggregates=aggregates)
    else:
        orders = [[replace(one, value=column(one.value)) for one in order] for order in shape.orders]
        found = replace(shape, items=[column(value) for value in shape.items], orders=orders)
    rows = Map(shape.core, tuple(Made(new, value) for value, new in made.items()))
    return replace(found, core=blocks.common(rows))


def _named(value: Scalar, blocks: Blocks) -> Column:
    """A new column for a value, at its place in the query."""
    column = blocks.new.column(value.column.name if isinstance(value, Ref) else "value", value.type)
    blocks.notes.note_at(column, blocks.notes.place_of(value))
    return column


def _over(one: Aggregated, column: Callable[[Scalar], Scalar]) -> Aggregated:
    order = tuple(Sort(column(item.value), item.descending, item.nulls_first) for item in one.order)
    condition = one.filter if one.filter == TRUE else column(one.filter)
    return replace(one, arguments=tuple(map(column, one.arguments)), order=order, filter=condition)


def _in_groups(shape: Shape, blocks: Blocks) -> Shape:
    """The rows of the groups as DuckDB computes them, with what the block computes of them."""
    made: dict[Scalar, Column] = {Ref(group): group for group in shape.groups}
    for value in (*shape.items, *(one.value for order in shape.orders for one in order)):
        if columns_of(value) and value not in made:
            made[value] = _named(value, blocks)

    def above(groups: Term) -> Term:
        kept = groups if shape.having is None else Filter(groups, shape.having)
        return Map(kept, tuple(Made(column, value) for value, column in made.items()))

    def read(value: Scalar) -> Scalar:
        return Ref(made[value]) if value in made else value

    core = in_touched_groups(Aggregate(shape.core, shape.groups, shape.aggregates), blocks, above)
    orders = [[replace(one, value=read(one.value)) for one in order] for order in shape.orders]
    return replace(
        shape, core=core, items=[read(value) for value in shape.items], orders=orders, mode="bag", groups=(),
        aggregates=(), having=None, scalar=False,
    )  # fmt: skip


def _numbered(shape: Shape, blocks: Blocks) -> Shape:
    """The first rows of groups as rows with their numbers, filtered."""
    blocks.computes_windows = True
    assert shape.first is not None
    return with_numbers(shape, shape.first)


def _with_numbers(shape: Shape, blocks: Blocks) -> Shape:
    """The block with its row numbers as columns."""
    blocks.computes_windows = True
    return shape

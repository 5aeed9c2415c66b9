"""Operators without a native form become touched groups: DuckDB computes the groups that an epoch changes.

The rows below the operator are a block of their own. The operator is printed as SQL over the rows of some groups, told
apart by side: as they were before an epoch, and as they are after it. A column SIDE joins the groups and partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.planner.algebra.rewriting import passed, projected
from sqlfront.planner.algebra.scalars import Column, Ref, Scalar, columns_of
from sqlfront.planner.algebra.terms import Aggregate, Common, Distinct, Made, Map, Scan, Window, scalars_of
from sqlfront.planner.algebra.to_sql import to_sql
from sqlfront.planner.algebra.total_orders import name_of, with_total_orders
from sqlfront.planner.model.query import SIDE, TouchedGroups

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

Computed = Aggregate | Window | Distinct
_ROWS = "__rows"


def in_touched_groups(term: Computed, blocks: Blocks) -> Common:
    """A term that reads the operator's rows as a block that DuckDB computes. Raises NotSupportedError for what is below
    it."""
    written, term = term, _over_columns(term, blocks)
    columns = _needed(term)
    term = replace(term, input=projected(term.input, columns))
    ordered = with_total_orders(term, columns)
    blocks.completed[written] = ordered
    table = blocks.derive(ordered.input)
    names = [name for name, _ in blocks.definitions[table].columns]
    side = blocks.new.column(SIDE, "TINYINT")
    over = replace(ordered, input=Scan((_ROWS,), (*zip(names, columns, strict=True), (SIDE, side))))
    shown = tuple((f"c{place}", column.type) for place, column in enumerate(term.columns))
    keys = _keys(term)
    groups = TouchedGroups(
        table,
        tuple(name for name, column in zip(names, columns, strict=True) if column in keys),
        _printed(_sided(over, side), (*term.columns, side)),
        shown,
        _printed(over, term.columns) if _has_whole_group(term) else None,
        _label(term),
    )
    name = f'"__derived"."{len(blocks.definitions) + 1}"'
    blocks.definitions[name] = groups
    blocks.shared[name] = name
    return Common(name, written, written.columns)


def _over_columns(term: Computed, blocks: Blocks) -> Computed:
    """A window whose partitions are columns of its input; any other term as it is."""
    if not isinstance(term, Window):
        return term
    made: dict[Scalar, Column] = {}
    for one in term.functions:
        for value in one.partition:
            if not isinstance(value, Ref) and value not in made:
                made[value] = blocks.new.column("part", value.type)
    if not made:
        return term
    below = Map(term.input, (*passed(term.input.columns), *(Made(column, value) for value, column in made.items())))
    functions = tuple(
        replace(one, partition=tuple(Ref(made[value]) if value in made else value for value in one.partition))
        for one in term.functions
    )
    return Window(below, functions)


def _needed(term: Computed) -> tuple[Column, ...]:
    """The columns of its input that an operator reads or passes on, in their order there."""
    read = set(columns_of(*scalars_of(term)))
    if isinstance(term, Aggregate):
        read |= {*term.groups, *(column for _, columns in term.grouping for column in columns)}
    else:
        read |= set(term.input.columns)
    return tuple(column for column in term.input.columns if column in read)


def _keys(term: Computed) -> frozenset[Column]:
    """The columns whose values name the group of a row; none where all rows are one group."""
    match term:
        case Aggregate(groups=groups, sets=None):
            return frozenset(groups)
        case Aggregate(sets=sets):
            return frozenset.intersection(*(sets or ()))
        case Distinct(on=on):
            return frozenset(on or ())
        case Window(functions=functions):
            return frozenset.intersection(*(columns_of(*one.partition) for one in functions))


def _sided(term: Computed, side: Column) -> Computed:
    """The operator for each side by itself."""
    match term:
        case Aggregate(groups=groups, sets=sets):
            sided = None if sets is None else tuple(one | {side} for one in sets)
            return replace(term, groups=(*groups, side), sets=sided)
        case Distinct(on=on):
            return replace(term, on=(*(on or ()), side))
        case Window(functions=functions):
            made = tuple(replace(one, partition=(*one.partition, Ref(side))) for one in functions)
            return replace(term, functions=made)


def _printed(term: Computed, columns: Iterable[Column]) -> str:
    """The operator as SQL over `{rows}`."""
    names = [(column, SIDE if column.name == SIDE else f"c{place}") for place, column in enumerate(columns)]
    return to_sql(term, names).replace(f'"{_ROWS}"', "{rows}")


def _has_whole_group(term: Computed) -> bool:
    """Whether one group has all rows, and so is there over no rows too."""
    return isinstance(term, Aggregate) and frozenset() in (term.sets or (frozenset(term.groups),))


def _label(term: Computed) -> str:
    """What DuckDB computes, for people."""
    match term:
        case Aggregate(sets=sets) if sets is not None:
            return "grouping sets"
        case Aggregate(aggregates=aggregates):
            return ", ".join(dict.fromkeys(name_of(one.form) for one in aggregates)) or "groups"
        case Distinct():
            return "DISTINCT ON"
        case Window(functions=functions):
            return ", ".join(dict.fromkeys(f"{name_of(one.form)}() OVER" for one in functions))

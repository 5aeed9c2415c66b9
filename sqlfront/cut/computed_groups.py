"""Operators without a native form become touched groups: DuckDB computes the groups that an epoch changes.

The rows below the operator are a block of their own. The operator is printed as SQL over the rows of some groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.planner.algebra.rewriting import passed, projected
from sqlfront.planner.algebra.scalars import Column, Constant, Ref, Scalar, columns_of, function_name
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Distinct,
    Made,
    Map,
    Scan,
    Term,
    Unnest,
    Window,
    scalars_of,
)
from sqlfront.planner.algebra.to_sql import to_sql
from sqlfront.planner.algebra.total_orders import with_total_orders
from sqlfront.planner.model.computed_rows import GroupingSets, TouchedGroups

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

Computed = Aggregate | Window | Distinct | Unnest
ROWS = "__rows"
"""The table that a computed term reads: the rows of some groups."""
_WHY = {"product": "PRODUCT is rounded after each factor, so it is no function of sums over the rows"}
"""Why aggregates that look like sums have no native form."""


def in_touched_groups(
    term: Computed,
    blocks: Blocks,
    above: Callable[[Term], Term] = lambda term: term,
    read: frozenset[Column] | None = None,
) -> Common:
    """The operator as a block that DuckDB computes. `above` puts further operators on it, which keep the columns of its
    groups; of the others those are left out that are not `read`, if that is said. NotSupportedError if the rows below
    cannot be a block."""
    written, term = term, _over_columns(term, blocks)
    rows = kept_rows(term, blocks)
    columns, term = rows.columns, replace(term, input=rows)
    if isinstance(term, Aggregate):
        told = (_WHY.get(function_name(one.form)) for one in term.aggregates)
        blocks.told |= {why: None for why in told if why is not None}
    ordered = with_total_orders(term, columns)
    blocks.completed[written] = ordered
    table = blocks.table_of(rows)
    names = [name for name, _ in blocks.definitions[table].columns]
    over = above(replace(ordered, input=Scan((ROWS,), tuple(zip(names, columns, strict=True)))))
    keys = _keys(term)
    if read is not None:
        kept = [column for column in over.columns if column in read | keys]
        over = projected(over, kept or over.columns[:1])  # A relation has a column.
    named = [(name, column) for name, column in zip(names, columns, strict=True) if column in keys]
    return kept_by_group(table, named, over, above(written), label_of(term), blocks)


def kept_by_group(
    table: str,
    keys: Sequence[tuple[str, Column]],
    over: Term,
    written: Term,
    label: str,
    blocks: Blocks,
    sets: GroupingSets | None = None,
) -> Common:
    """The block of groups that DuckDB computes by `over`, a term over `ROWS`, for the term that is `written`. `keys`
    are the columns of the groups, by their names in the table. The last column over `sets` is the number of the set."""
    shown = {column: f"c{place}" for place, column in enumerate(over.columns)}
    groups = TouchedGroups(
        table,
        tuple(name for name, _ in keys),
        to_sql(over, tuple(shown.items())).replace(f'"{ROWS}"', "{rows}"),
        tuple((name, column.type) for column, name in shown.items()),
        tuple(shown[column] for _, column in keys),
        label,
        single=isinstance(over, Aggregate) or sets is not None,
        sets=sets,
    )
    name = f'"__derived"."{len(blocks.definitions) + 1}"'
    blocks.definitions[name] = groups
    blocks.shared[name] = name
    return Common(name, written, over.columns)


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


def kept_rows(term: Computed, blocks: Blocks) -> Term:
    """The rows that are kept for an operator: the columns that it needs; all of a shared term, which is kept once."""
    if isinstance(term.input, Common) and term.input.columns:
        return term.input
    columns = _needed(term)
    one = Made(blocks.new.column("one", "INTEGER"), Constant("1", "INTEGER"))  # A relation has a column.
    return projected(term.input, columns) if columns else Map(term.input, (one,))


def _needed(term: Computed) -> tuple[Column, ...]:
    """The columns of its input that an operator reads or passes on, in their order there."""
    read = set(columns_of(*scalars_of(term)))
    if isinstance(term, Aggregate):
        read |= frozenset(term.groups)
    else:
        read |= set(term.input.columns)
    return tuple(column for column in term.input.columns if column in read)


def _keys(term: Computed) -> frozenset[Column]:
    """The columns whose values name the group of a row; none where all rows are one group."""
    match term:
        case Aggregate(groups=groups):
            return frozenset(groups)
        case Distinct(on=on):
            return frozenset(on or ())
        case Unnest(input=input):
            return frozenset(input.columns)
        case Window(functions=functions):
            return frozenset.intersection(*(columns_of(*one.partition) for one in functions))


def label_of(term: Computed) -> str:
    """A name, for people, of the part that DuckDB computes."""
    match term:
        case Aggregate(aggregates=aggregates):
            return ", ".join(dict.fromkeys(function_name(one.form) for one in aggregates)) or "groups"
        case Distinct():
            return "DISTINCT ON"
        case Unnest():
            return "unnest"
        case Window(functions=functions):
            return ", ".join(dict.fromkeys(f"{function_name(one.form)}() OVER" for one in functions))

"""Operators without a native form become touched groups: DuckDB computes the groups that an epoch changes.

The rows below the operator are a block of their own. The operator is printed as SQL over the rows of some groups. A
comparison with the clock is a temporal filter over such a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.cut.session_values import has_fixed_zone
from sqlfront.planner.algebra.clock import ClockValues, Timed, comparisons, has_clock, is_steady
from sqlfront.planner.algebra.rewriting import extended, passed, projected, rewrite
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Column,
    Constant,
    Ref,
    Scalar,
    cast,
    columns_of,
    conjunction,
    conjuncts,
    function_name,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Distinct,
    Filter,
    Join,
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
from sqlfront.planner.model.computed_rows import GroupingSets, TemporalRows, TimeBound, TouchedGroups
from sqlfront.storage.codecs.order import is_orderable

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


def with_temporal_filters(term: Term, clock: ClockValues, blocks: Blocks) -> Term:
    """A term whose comparisons with the clock, for which there are constants, are blocks."""

    def change(part: Term) -> Term:
        if not isinstance(part, Filter | Join) or not has_clock(part.condition, clock):
            return part
        found = [one for each in conjuncts(part.condition) for one in comparisons(each, clock, blocks.types.common)]
        rest = conjunction([one for one in found if not isinstance(one, Timed)])
        if isinstance(part, Join) and (part.kind != "inner" or part.dependent):
            raise _not_of_rows(part, blocks)
        below = replace(part, condition=rest) if isinstance(part, Join) else _filtered(part.input, rest)
        return _temporal(part, below, [one for one in found if isinstance(one, Timed)], clock, blocks)

    return rewrite(term, change)


def _temporal(part: Term, rows: Term, found: Sequence[Timed], clock: ClockValues, blocks: Blocks) -> Common:
    """The rows that pass comparisons with the clock as a block, for the term that is written."""
    columns, made = rows.columns, dict[Scalar, Column]()
    values = [cast(one.value, one.type) if one.type is not None else one.value for one in found]
    for one, value in zip(found, values, strict=True):
        if one.type is None or not is_orderable(one.type):
            why = "values of this type are in no order in which rows could wait for the clock"
            hint = "compare a date or a timestamp with the clock"
            raise blocks.notes.refusal("This comparison", blocks.notes.place_of(one.clock), why, hint)
        if not isinstance(value, Ref) and value not in made:
            made[value] = blocks.new.column("time", value.type)
    if made:
        rows = extended(rows, [Made(column, value) for value, column in made.items()])
    times = [value.column if isinstance(value, Ref) else made[value] for value in values]
    table = blocks.derive(rows)
    names = {column: name for column, (name, _) in zip(rows.columns, blocks.definitions[table].columns, strict=True)}
    fixed = has_fixed_zone(blocks.bound.settings)
    bounds = tuple(
        TimeBound(
            names[column], one.operator, clock[one.clock], column.type, _spelled(one, blocks),
            steady=is_steady(clock[one.clock], column.type, fixed_zone=fixed),
        )
        for column, one in zip(times, found, strict=True)
    )  # fmt: skip
    kept = TemporalRows(table, bounds, tuple((names[column], column.type) for column in columns))
    name = blocks.add_view(kept)
    blocks.shared[name] = name
    return Common(name, part, columns)


def _spelled(one: Timed, blocks: Blocks) -> str:
    value = blocks.notes.written(one.value) or (one.value.column.name if isinstance(one.value, Ref) else "time")
    return f"{value} {one.operator} {blocks.notes.written(one.clock) or one.clock.sql}"


def _not_of_rows(part: Join, blocks: Blocks) -> Exception:
    why = "it decides which rows are partners, and partners that come and go with time are no rows of one table"
    place = next(blocks.notes.place_of(one) for one in conjuncts(part.condition))
    hint = "filter the table in a subquery: JOIN (SELECT * FROM t WHERE ts > now() - INTERVAL 1 HOUR) AS t"
    return blocks.notes.refusal("A comparison with the clock in this join", place, why, hint)


def _filtered(term: Term, condition: Scalar) -> Term:
    return term if condition == TRUE else Filter(term, condition)


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

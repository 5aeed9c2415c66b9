"""Grouping sets become the union of the groups of each set, so a change touches one group of each.

A set groups the rows by its own columns; the other columns are NULL there, and GROUPING() is a constant. Each set is a
block of its own, native where its aggregates are. The sets of a native form each join the tables; else they have the
rows of one block in common.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.cut.measures_of import AVERAGES, SummedArguments
from sqlfront.planner.algebra.column_use import columns_read
from sqlfront.planner.algebra.missing_partners import is_plain
from sqlfront.planner.algebra.rewriting import copied, projected
from sqlfront.planner.algebra.scalars import TRUE, Column, Constant, IsNull, Not, Ref, Scalar, function_name, null
from sqlfront.planner.algebra.terms import Aggregate, Aggregated, Common, Made, Map, SetOperation, Term
from sqlfront.planner.algebra.total_orders import with_total_orders

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

MOST_SETS = 500
"""The most grouping sets of a query: as many as a union may have branches."""


def union_of_sets(term: Aggregate, blocks: Blocks) -> Term:
    """The groups of all sets, in the columns of the term. NotSupportedError if there are too many sets."""
    sets = term.sets or ()
    if len(sets) > MOST_SETS:
        why = f"it has {len(sets):,} grouping sets, and each is a view of its own"
        hint = f"make views of at most {MOST_SETS} grouping sets each, and a UNION ALL of these"
        raise blocks.notes.refusal("GROUP BY of this many sets", blocks.notes.place(*term.columns), why, hint)
    [read] = columns_read(term, frozenset(term.columns))
    rows = projected(term.input, [column for column in term.input.columns if column in read])
    ordered = with_total_orders(replace(term, input=rows), rows.columns)
    if ordered.aggregates != term.aggregates:
        blocks.completed[term] = ordered
    grouped = replace(term, input=_shared(term, rows, blocks))
    branches = [copied(_groups_of(grouped, one, blocks), blocks.new)[0] for one in sets]
    found = branches[0]
    for branch in branches[1:]:
        found = SetOperation("union", True, found, branch, tuple(map(blocks.new.like, term.columns)))
    return Map(found, tuple(Made(one, Ref(old)) for one, old in zip(term.columns, found.columns, strict=True)))


def _shared(term: Aggregate, rows: Term, blocks: Blocks) -> Common:
    """The rows that all sets group."""
    if is_plain(rows) and not blocks.is_native(replace(term, input=rows, sets=None, grouping=())):
        return blocks.common(rows)
    return Common(f"sets {blocks.new.column('', 'BOOLEAN').number}", rows, rows.columns)


def _groups_of(term: Aggregate, one: frozenset[Column], blocks: Blocks) -> Map:
    """The groups of one set, with a column for each of the term's."""
    groups = tuple(column for column in term.groups if column in one)
    aggregates = term.aggregates if groups or not term.groups else _divided(term.aggregates)
    values: dict[Column, Scalar] = {column: null(column.type) for column in term.groups if column not in one}
    for column, columns in term.grouping:
        bits = "".join("01"[grouped not in one] for grouped in columns)
        values[column] = Constant(str(int(bits, 2)), column.type)
    made = tuple(Made(blocks.new.like(column), values.get(column, Ref(column))) for column in term.columns)
    return Map(Aggregate(term.input, groups, aggregates), made)


def _divided(aggregates: tuple[Aggregated, ...]) -> tuple[Aggregated, ...]:
    """Aggregates over all rows, with the averages of groups: DuckDB rounds another way if there is no GROUP BY, and no
    FILTER."""
    summed = SummedArguments(aggregates, scalar=False)
    return tuple(
        replace(one, filter=Not(IsNull(one.arguments[0])))
        if function_name(one.form) in AVERAGES and one.filter == TRUE and not summed.averages_by_sum(one)
        else one
        for one in aggregates
    )

"""Grouping sets: a change touches one group of each.

A set groups the rows by its own columns; the other columns are NULL there, and GROUPING() is a constant. Where the
aggregates are native, the sets are a union of the groups of each, which join the tables or read one block. Else DuckDB
computes the touched groups of all sets in one query over rows that have the number of a set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.binding.select_items import unique_names
from sqlfront.cut.computed_groups import ROWS, kept_by_group, label_of
from sqlfront.cut.measures_of import AVERAGES, SummedArguments
from sqlfront.planner.algebra.column_use import columns_read
from sqlfront.planner.algebra.groups_of_set import constants_of_set, grouping_bits, groups_of_set
from sqlfront.planner.algebra.join_sides import is_plain
from sqlfront.planner.algebra.rewriting import copied, passed, projected
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Constant,
    IsNull,
    Not,
    Ref,
    Scalar,
    function_name,
    null,
)
from sqlfront.planner.algebra.terms import Aggregate, Aggregated, Common, Filter, Made, Map, Scan, SetOperation, Term
from sqlfront.planner.algebra.total_orders import with_total_orders
from sqlfront.planner.model.computed_rows import GroupingSets

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

MOST_SETS = 500
"""The most grouping sets of a query: as many as a union may have branches."""
_UNION = "grouping sets are a union: each set is grouped by its own columns"


def groups_of_sets(term: Aggregate, blocks: Blocks) -> Term:
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
    if not _is_native(grouped, blocks):
        found: Term = _in_touched_groups(grouped, blocks)
        return Map(found, tuple(Made(one, Ref(old)) for one, old in zip(term.columns, found.columns)))
    blocks.told[_UNION] = None
    branches = [copied(_groups_of(grouped, one, blocks), blocks.new)[0] for one in sets]
    found = branches[0]
    for branch in branches[1:]:
        found = SetOperation("union", True, found, branch, tuple(map(blocks.new.like, term.columns)))
    return Map(found, tuple(Made(one, Ref(old)) for one, old in zip(term.columns, found.columns, strict=True)))


def _shared(term: Aggregate, rows: Term, blocks: Blocks) -> Common:
    """The rows that all sets group."""
    if not is_plain(rows) or _is_native(replace(term, input=rows), blocks):
        return Common(f"sets {blocks.new.column('', 'BOOLEAN').number}", rows, rows.columns)
    return blocks.common(rows)


def _is_native(term: Aggregate, blocks: Blocks) -> bool:
    """Whether the groups by all columns are a sum over the rows."""
    return blocks.is_native(replace(term, sets=None, grouping=()))


def _in_touched_groups(term: Aggregate, blocks: Blocks) -> Common:
    """The groups of all sets as one block that DuckDB computes; its last column is the number of the set."""
    rows = term.input
    table = blocks.table_of(rows)
    names = [name for name, _ in blocks.definitions[table].columns]
    tag = unique_names([*names, "grouping set"])[-1]
    number = blocks.new.column(tag, "INTEGER")
    ordered = with_total_orders(term, rows.columns)
    scan = Scan((ROWS,), (*zip(names, rows.columns), (tag, number)))
    over = _computed(replace(ordered, input=scan), number, blocks)
    named = [(name, column) for name, column in zip(names, rows.columns) if column in term.groups]
    keys = tuple(tuple(name for name, column in named if column in one) for one in term.sets or ())
    sets = GroupingSets(keys, tag, f"c{len(over.columns) - 1}")
    return kept_by_group(table, named, over, term, label_of(term), blocks, sets)


def _computed(term: Aggregate, number: Column, blocks: Blocks) -> Term:
    """The groups of all sets, and the number of the set, over rows that have it. A set without columns has its row over
    no rows too."""
    sets = term.sets or ()
    masked = {column: blocks.new.like(column) for column in term.groups}
    whole = [place for place, one in enumerate(sets) if not one]
    by_column = {column: [place for place, one in enumerate(sets) if column in one] for column in term.groups}
    own = (Made(new, _chosen(number, Ref(column), by_column[column])) for column, new in masked.items())
    grouped: Term = Filter(term.input, Not(_among(number, whole))) if whole else term.input
    rows = Map(grouped, (*passed(term.input.columns), *own))
    columns = (*term.columns, number)

    def made(values: dict[Column, Scalar]) -> tuple[Made, ...]:
        return tuple(Made(column, values.get(column, Ref(column))) for column in columns)

    bits: dict[Column, Scalar] = {
        column: Call(
            f"[{', '.join(str(grouping_bits(grouped, one)) for one in sets)}][{{0}} + 1]", (Ref(number),), column.type,
            can_fail=False,
        )
        for column, grouped in term.grouping
    }  # fmt: skip
    groups = Aggregate(rows, (number, *masked.values()), term.aggregates)
    unmasked: dict[Column, Scalar] = {column: Ref(new) for column, new in masked.items()}
    found: Term = Map(groups, made(unmasked | bits))
    for place in whole:
        one = Filter(term.input, _among(number, [place]))
        aggregates = _divided(term.aggregates) if term.groups else term.aggregates
        values = constants_of_set(term, sets[place]) | {number: Constant(str(place), number.type)}
        all_rows = Map(Aggregate(one, (), aggregates), made(values))
        found = SetOperation("union", True, found, all_rows, columns)
    return found


def _among(number: Column, places: Sequence[int]) -> Scalar:
    """Whether the set is one of these."""
    return Call("{0} IN (" + ", ".join(map(str, places)) + ")", (Ref(number),), "BOOLEAN", can_fail=False)


def _chosen(number: Column, value: Scalar, places: Sequence[int]) -> Scalar:
    """A value in these sets, NULL in others."""
    if not places:
        return null(value.type)
    return Call("CASE WHEN {0} THEN {1} END", (_among(number, places), value), value.type, can_fail=False)


def _groups_of(term: Aggregate, one: frozenset[Column], blocks: Blocks) -> Map:
    """The groups of one set, with a column for each of the term's."""
    is_whole = term.groups and not one
    return groups_of_set(term, one, _divided(term.aggregates) if is_whole else term.aggregates, blocks.new)


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

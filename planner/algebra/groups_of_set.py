"""The groups of one grouping set: the columns that it does not group by are NULL, and GROUPING() is a constant."""

from __future__ import annotations

from collections.abc import Sequence

from sqlfront.planner.algebra.rewriting import ColumnSource
from sqlfront.planner.algebra.scalars import Column, Constant, Ref, Scalar, null
from sqlfront.planner.algebra.terms import Aggregate, Aggregated, Made, Map


def groups_of_set(
    term: Aggregate, one: frozenset[Column], aggregates: tuple[Aggregated, ...], new: ColumnSource
) -> Map:
    """The groups of a set, with a new column for each of the term's."""
    groups = tuple(column for column in term.groups if column in one)
    values = constants_of_set(term, one)
    made = tuple(Made(new.like(column), values.get(column, Ref(column))) for column in term.columns)
    return Map(Aggregate(term.input, groups, aggregates), made)


def constants_of_set(term: Aggregate, one: frozenset[Column]) -> dict[Column, Scalar]:
    """What a set has in place of the columns that it does not group by, and of GROUPING()."""
    values: dict[Column, Scalar] = {column: null(column.type) for column in term.groups if column not in one}
    for column, grouped in term.grouping:
        values[column] = Constant(f"CAST({grouping_bits(grouped, one)} AS {column.type})", column.type)
    return values


def grouping_bits(columns: Sequence[Column], one: frozenset[Column]) -> int:
    """GROUPING() of these columns in a set."""
    return int("".join("01"[column not in one] for column in columns), 2)

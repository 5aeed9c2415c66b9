"""Aggregates over no rows: how one aggregate per row of a domain gives COUNT 0 and SUM NULL for a row without partners.

Source: Neumann and Kemper, Unnesting arbitrary queries, BTW 2015, section 3.2; Galindo-Legaria and Joshi, SIGMOD 2001
(an aggregate over an empty group needs an outer join).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlfront.planner.algebra.rewriting import NewColumns, extended, projected
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    Logic,
    Not,
    Ref,
    Scalar,
    conjunction,
)
from sqlfront.planner.algebra.terms import Aggregate, Aggregated, Filter, Join, Made, Term

ZERO = {"count", "count_star", "count_if", "countif", "regr_count", "approx_count_distinct"}
"""Aggregates that are 0 over no rows."""
NULL = {
    "sum", "avg", "mean", "min", "max", "list", "array_agg", "string_agg", "group_concat", "listagg", "first", "last",
    "any_value", "arg_min", "arg_max", "min_by", "max_by", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor",
    "product", "fsum", "kahan_sum", "median", "mode", "quantile", "quantile_cont", "quantile_disc", "mad",
    "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp",
}  # fmt: skip
"""Aggregates that are NULL over no rows; of others DuckDB says it, given filtered rows."""


def grouped_by_all(term: Aggregate, input: Term, by: Iterable[Column]) -> Aggregate:
    """The same aggregate for each combination of further columns."""
    more = tuple(by)
    sets = None if term.sets is None else tuple(one | frozenset(more) for one in term.sets)
    return replace(term, input=input, groups=(*term.groups, *more), sets=sets)


def is_empty_known(term: Aggregate) -> bool:
    """Whether there is one group, and it is known what each aggregate is over no rows."""
    return not term.groups and term.sets is None and all(_name(one) in ZERO | NULL for one in term.aggregates)


def with_empty_groups(left: Term, grouped: Aggregate, same: Scalar, new: NewColumns) -> Term:
    """The rows of the left with the aggregates of their group, or with those of no rows."""
    zeros = {one.column: new.like(one.column) for one in grouped.aggregates if _name(one) in ZERO}
    counted = (replace(one, column=zeros.get(one.column, one.column)) for one in grouped.aggregates)
    joined = Join("left", left, replace(grouped, aggregates=tuple(counted)), same)
    made = [
        Made(column, Call("coalesce({0}, 0)", (Ref(count),), column.type, can_fail=False))
        for column, count in zeros.items()
    ]
    columns = (*left.columns, *(one.column for one in grouped.aggregates))
    return projected(extended(joined, made), columns)


def with_filtered_groups(
    term: Aggregate, domain: Term, by: Iterable[Column], inner: Term, same: Scalar, new: NewColumns
) -> Term:
    """Any aggregates, and grouping sets: each row of the domain has a row, which every aggregate filters out."""
    mark = new.column("present", "BOOLEAN")
    rows = Join("left", domain, extended(inner, (Made(mark, TRUE),)), same)
    present = Not(IsNull(Ref(mark)))
    kept = tuple(replace(one, filter=conjunction([present, one.filter])) for one in term.aggregates)
    if term.sets is None or not term.groups:
        return grouped_by_all(replace(term, aggregates=kept), rows, by)
    # Of the grouping sets, the empty one alone has a row for a row of the domain without partners.
    found, bits = new.column("found", "BIGINT"), new.column("grouping", "BIGINT")
    counted = Aggregated(found, "count({before}{0})", (Ref(mark),))
    sets = replace(term, aggregates=(*kept, counted), grouping=(*term.grouping, (bits, term.groups)))
    some = Compare(">", Ref(found), Constant("0", "BIGINT"))
    total = Compare("=", Ref(bits), Constant(str(2 ** len(term.groups) - 1), "BIGINT"))
    return Filter(grouped_by_all(sets, rows, by), Logic("OR", (some, total)))


def _name(one: Aggregated) -> str:
    return one.form.partition("(")[0].strip().lower()

"""Orders that leave nothing open: what DuckDB's answer depends on where a query does not say, by its rows' columns.

An aggregate that depends on the order of its rows, a row number, LAG and DISTINCT ON are completed by their arguments
and then by all other columns that are read; an aggregate of DISTINCT values by its arguments alone, by which these are
told apart. RANK and its kin, and frames by RANGE and GROUPS, are left alone: rows that tie are peers to them. In such
frames the first and the last value are told by an order of the argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from sqlfront.planner.algebra.scalars import Column, Ref, Scalar, columns_of, function_name
from sqlfront.planner.algebra.terms import Aggregate, Aggregated, Distinct, Sort, Unnest, Window, Windowed

Ordered = TypeVar("Ordered", bound=Aggregate | Window | Distinct | Unnest)

FIRSTS = ("first", "arbitrary", "any_value", "last")
"""Aggregates whose value is that of the first row in an order, or of the last. ANY_VALUE leaves NULLs out."""

ORDERED = frozenset(
    (
        *(*FIRSTS, "list", "array_agg", "string_agg", "group_concat", "listagg"),
        *("arg_min", "argmin", "min_by", "arg_max", "argmax", "max_by", "arg_min_null", "arg_max_null", "mode"),
        *("approx_quantile", "approx_top_k", "approx_count_distinct", "reservoir_quantile", "json_group_array"),
        *("json_group_object", "json_group_structure", "map_from_entries"),
    )
)
"""Aggregates whose value depends on the order in which they meet their rows."""

_GREATEST = ("arg_max", "argmax", "max_by", "arg_max_null")
_PLACES = frozenset(("row_number", "lag", "lead", "ntile"))
_ENDS = frozenset(("first_value", "last_value", "nth_value", "first", "last", "any_value"))


def with_total_orders(term: Ordered, rows: Sequence[Column]) -> Ordered:
    """The operator over the columns `rows`, with orders that leave nothing open."""
    match term:
        case Aggregate():
            made = tuple(
                _aggregated(one, rows) if function_name(one.form) in ORDERED else one for one in term.aggregates
            )
            return replace(term, aggregates=made)
        case Distinct():
            return replace(term, order=_completed(term.order, (), rows))
        case Window():
            return replace(term, functions=tuple(_windowed(one, rows) for one in term.functions))
    return term


def with_rows_order(one: Windowed, rows: Sequence[Column]) -> Windowed:
    """A window function whose order is completed by the columns of its rows alone, as one order serves several
    functions. Frames by RANGE and GROUPS are left alone, but for their first and last value."""
    name, ordered = function_name(one.form), _completed(one.order, (), rows)
    if name in _PLACES or one.frame.upper().startswith("ROWS"):
        return replace(one, order=ordered)
    return replace(one, argument_order=ordered) if name in _ENDS else one


def _aggregated(one: Aggregated, rows: Sequence[Column]) -> Aggregated:
    order = one.order
    if function_name(one.form) in _GREATEST:  # DuckDB gives the first of those that tie: the greatest.
        order = (*order, Sort(one.arguments[0], descending=True))
    return replace(one, order=_completed(order, one.arguments, () if one.distinct else rows))


def _windowed(one: Windowed, rows: Sequence[Column]) -> Windowed:
    name = function_name(one.form)
    if name in _PLACES or (one.order and one.frame.upper().startswith("ROWS")):
        return replace(one, order=_completed(one.order, one.arguments, rows))
    if name in ORDERED | _ENDS:
        order, among = ((), ()) if one.distinct else (one.order, rows)
        return replace(one, argument_order=_completed((*one.argument_order, *order), one.arguments, among))
    return one


def _completed(order: Sequence[Sort], arguments: Sequence[Scalar], rows: Sequence[Column]) -> tuple[Sort, ...]:
    """An order, then the arguments and all columns of the rows that it does not have."""
    found: dict[Scalar, Sort] = {}
    for one in (*order, *map(Sort, arguments), *map(Sort, map(Ref, rows))):
        if columns_of(one.value):
            found.setdefault(one.value, one)
    return tuple(found.values())

"""LIMIT and OFFSET for each row of a domain: a filter of row numbers."""

from __future__ import annotations

from collections.abc import Sequence

from sqlfront.planner.algebra.rewriting import NewColumns
from sqlfront.planner.algebra.scalars import Call, Column, Compare, Constant, Operator, Ref, Scalar, conjunction
from sqlfront.planner.algebra.terms import Filter, Term, Top, Window, Windowed


def limit_each(top: Top, input: Term, by: Sequence[Column], new: NewColumns) -> Term:
    """The first rows of the input for each combination of columns; a LIMIT or OFFSET of NULL is none.

    DuckDB takes no LIMIT in percent in a correlated subquery.
    """
    assert not top.percent
    partition = tuple(map(Ref, by))
    number = new.column("row_number", "BIGINT")
    numbered = Windowed(number, "row_number()", partition=partition, order=top.order, written=top.written)
    conditions = []
    if top.offset is not None:
        conditions.append(_bounded(">", Ref(number), top.offset))
    if top.limit is not None:
        last = top.limit if top.offset is None else _sum(top.limit, top.offset)
        conditions.append(_bounded("<=", Ref(number), last))
    if not conditions:
        return input
    return Filter(Window(input, (numbered,)), conjunction(conditions))


def _bounded(operator: Operator, number: Scalar, bound: Scalar) -> Scalar:
    if _is_number(bound):
        return Compare(operator, number, bound)
    return _call(f"coalesce({{0}} {operator} {{1}}, true)", number, bound, "BOOLEAN")


def _sum(limit: Scalar, offset: Scalar) -> Scalar:
    if isinstance(limit, Constant) and isinstance(offset, Constant) and _is_number(limit) and _is_number(offset):
        return Constant(str(int(limit.sql) + int(offset.sql)), "BIGINT")
    return _call("{0} + coalesce({1}, 0)", limit, offset, "BIGINT")


def _is_number(bound: Scalar) -> bool:
    return isinstance(bound, Constant) and bound.sql.isdigit()


def _call(form: str, value: Scalar, bound: Scalar, type: str) -> Scalar:
    return Call(form, (value, bound), type, can_fail=False)

"""LIMIT and OFFSET for each row of a domain: a filter of row numbers."""

from __future__ import annotations

from collections.abc import Sequence

from sqlfront.planner.algebra.rewriting import NewColumns
from sqlfront.planner.algebra.scalars import Call, Column, Ref, Scalar, conjunction
from sqlfront.planner.algebra.terms import Filter, Term, Top, Window, Windowed


def limit_each(top: Top, input: Term, by: Sequence[Column], new: NewColumns) -> Term:
    """The first rows of the input for each combination of columns; a LIMIT or OFFSET of NULL is none."""
    partition = tuple(map(Ref, by))
    number = new.column("row_number", "BIGINT")
    functions = [Windowed(number, "row_number()", partition=partition, order=top.order)]
    most = top.limit
    if most is not None and top.percent:
        total = new.column("count", "BIGINT")
        functions.append(Windowed(total, "count(*)", partition=partition))
        most = _call("CAST(floor({0} * CAST({1} AS DOUBLE) / 100) AS BIGINT)", Ref(total), most)
    conditions = []
    if top.offset is not None:
        conditions.append(_call("coalesce({0} > {1}, true)", Ref(number), top.offset, "BOOLEAN"))
    if most is not None:
        last = most if top.offset is None else _call("{0} + coalesce({1}, 0)", most, top.offset)
        conditions.append(_call("coalesce({0} <= {1}, true)", Ref(number), last, "BOOLEAN"))
    if not conditions:
        return input
    return Filter(Window(input, tuple(functions)), conjunction(conditions))


def _call(form: str, value: Scalar, bound: Scalar, type: str = "BIGINT") -> Scalar:
    return Call(form, (value, bound), type, can_fail=False)

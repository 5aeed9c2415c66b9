"""Filters of row numbers: the first rows of each group."""

from __future__ import annotations

from dataclasses import dataclass

from sqlfront.planner.algebra.scalars import (
    MIRRORED,
    Column,
    Compare,
    Constant,
    Operator,
    Ref,
    Scalar,
    columns_of,
    conjuncts,
    function_name,
)
from sqlfront.planner.algebra.terms import Filter, Term, Window, Windowed

NUMBERINGS = ("row_number", "rank", "dense_rank")


@dataclass(frozen=True)
class FirstRows:
    """The first `rows` rows of each group of a term, after `offset`, as a window function numbers them."""

    input: Term
    numbering: Windowed
    rows: int | None
    offset: int
    rest: tuple[Scalar, ...]

    @property
    def name(self) -> str:
        return function_name(self.numbering.form)

    @property
    def is_best(self) -> bool:
        """Whether one row of each group is left."""
        return (self.name, self.offset, self.rows) == ("row_number", 0, 1)


def first_rows(term: Filter) -> FirstRows | None:
    """What a filter over a window keeps, if that is the first rows of each group; `rest` are other conditions."""
    window = term.input
    if not isinstance(window, Window) or len(window.functions) != 1:
        return None
    [one] = window.functions
    plain = not (one.frame or one.argument_order or one.distinct or one.arguments) and columns_of(one.filter) == set()
    if function_name(one.form) not in NUMBERINGS or not plain:
        return None
    rows: int | None = None
    offset = 0
    rest = []
    for condition in conjuncts(term.condition):
        bounds = _bounds(condition, one.column)
        if bounds is None:
            rest.append(condition)
            continue
        least, most = bounds
        offset = max(offset, least - 1)
        rows = most if rows is None or (most is not None and most < rows) else rows
    if rows is None and not offset:
        return None
    return FirstRows(window.input, one, None if rows is None else max(0, rows - offset), offset, tuple(rest))


def compared(condition: Scalar) -> tuple[Column, Operator, Scalar] | None:
    """The column, the operator and the constant of a comparison; the column stands at its left."""
    if not isinstance(condition, Compare):
        return None
    left, operator, right = condition.left, condition.operator, condition.right
    if not columns_of(left):
        left, operator, right = right, MIRRORED[operator], left
    return (left.column, operator, right) if isinstance(left, Ref) and not columns_of(right) else None


def _bounds(condition: Scalar, number: Column) -> tuple[int, int | None] | None:
    """The first and the last number that a comparison with constants keeps."""
    found = compared(condition)
    if found is None or found[0] != number or not isinstance(found[2], Constant) or not found[2].sql.isdigit():
        return None
    bound = int(found[2].sql)
    match found[1]:
        case "<=":
            return 1, bound
        case "<":
            return 1, bound - 1
        case ">":
            return bound + 1, None
        case ">=":
            return bound, None
        case "=" if bound == 1:
            return 1, 1
    return None

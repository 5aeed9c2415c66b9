"""Expressions of the algebra, made and told apart by their forms."""

from __future__ import annotations

from collections.abc import Mapping

from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    Not,
    Scalar,
    substitute,
)
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.sql.keywords import quoted

_CAST, _TRY_CAST = "CAST({0} AS ", "TRY_CAST({0} AS "
ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATE = "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "-{0}"

CELL = "CASE WHEN {0} >= 0 THEN {0} // {1} ELSE -1 - (-1 - {0}) // {1} END"
"""The greatest whole number of at most {0} / {1}: division truncates, so numbers below 0 are counted down from -1."""


def is_cast(value: Scalar) -> bool:
    """Whether an expression is a CAST, not TRY_CAST."""
    return isinstance(value, Call) and value.form.startswith(_CAST)


def call(form: str, type_: str, *values: Scalar) -> Call:
    return Call(form, values, type_, can_fail=False)


def is_not_null(value: Scalar) -> Scalar:
    return Not(IsNull(value))


def guarded(condition: Scalar, value: Scalar) -> Scalar:
    """The value where the condition is true, else NULL."""
    return call("CASE WHEN {0} THEN {1} END", value.type, condition, value)


def equal(left: Scalar, right: Scalar) -> Compare:
    return Compare("=", left, right)


def is_case(value: Scalar) -> bool:
    return isinstance(value, Call) and value.form.startswith("CASE WHEN ")


def branches(case: Call) -> tuple[list[tuple[Scalar, Scalar]], Scalar]:
    """The (condition, value) pairs of a CASE, and its ELSE."""
    arguments = list(case.arguments)
    has_else = len(arguments) % 2 == 1
    otherwise = arguments.pop() if has_else else Constant("NULL", '"NULL"')
    return list(zip(arguments[::2], arguments[1::2], strict=True)), otherwise


def row_values(value: Scalar) -> tuple[Scalar, ...]:
    """The values of (a, b) or row(a, b)."""
    return value.arguments if isinstance(value, Call) and value.form.startswith("row(") else ()


def with_names(value: Scalar, names: Mapping[Column, str]) -> str:
    """An expression as DuckDB SQL in which columns have names, quoted where SQL needs it."""
    texts = {column: Constant(quoted(name), column.type) for column, name in names.items()}
    return scalar_sql(substitute(value, texts))


def in_words(value: Scalar) -> Scalar:
    """An expression for people: the cell of a value by its name."""
    is_cell = isinstance(value, Call) and value.form == CELL
    return Call("cell of {0}", value.arguments[:1], value.type) if is_cell else value  # type: ignore[union-attr]


def evaluated(con: object, value: Scalar) -> object:
    """The value of an expression without columns."""
    return con.execute(f"SELECT {scalar_sql(value)}").fetchall()[0][0]  # type: ignore[attr-defined]

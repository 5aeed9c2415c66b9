"""Scalar expressions of the algebra: DuckDB SQL over columns with numbers, with what rules must know of it.

DuckDB says the type of an expression and computes its value. A rule needs its columns, its logical structure (AND, OR,
NOT, comparisons), whether it can fail, and whether a NULL argument makes it NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

Operator = Literal["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
NULL_AWARE = ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")
MIRRORED: Mapping[Operator, Operator] = {
    **{operator: operator for operator in ("=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")},
    "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip
NEGATED: Mapping[Operator, Operator] = {
    "=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
    "IS DISTINCT FROM": "IS NOT DISTINCT FROM", "IS NOT DISTINCT FROM": "IS DISTINCT FROM",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of a term: a number that no other column of the query has, its name for people, its DuckDB type."""

    number: int
    name: str
    type: str

    def __str__(self) -> str:
        return f"c{self.number}"

    def __hash__(self) -> int:
        return self.number


class Expression:
    """What every expression has."""

    @cached_property
    def columns(self) -> frozenset[Column]:
        """The columns that the expression reads."""
        return columns_of(*parts_of(self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Ref(Expression):
    """The value of a column."""

    column: Column

    @cached_property
    def columns(self) -> frozenset[Column]:
        return frozenset((self.column,))

    @property
    def type(self) -> str:
        return self.column.type


@dataclass(frozen=True)
class Constant(Expression):
    """A value that no row decides, as DuckDB SQL."""

    sql: str
    type: str


@dataclass(frozen=True)
class Call(Expression):
    """A function, cast or operator: `form` is DuckDB SQL with {0}, {1}, ... for the arguments.

    `strict`: NULL if an argument is NULL. `can_fail`: some arguments raise an error. These are known of a call, and
    make no other call of it.
    """

    form: str
    arguments: tuple[Scalar, ...]
    type: str
    strict: bool = field(default=False, compare=False)
    can_fail: bool = field(default=True, compare=False)


@dataclass(frozen=True)
class Compare(Expression):
    """A comparison as DuckDB makes it: values of two types are compared in the type that both are cast to."""

    operator: Operator
    left: Scalar
    right: Scalar
    type: str = "BOOLEAN"


@dataclass(frozen=True)
class Logic(Expression):
    """AND or OR of any number of conditions, in three-valued logic."""

    word: Literal["AND", "OR"]
    parts: tuple[Scalar, ...]
    type: str = "BOOLEAN"


@dataclass(frozen=True)
class Not(Expression):
    """NOT of a condition, in three-valued logic."""

    part: Scalar
    type: str = "BOOLEAN"


@dataclass(frozen=True)
class IsNull(Expression):
    """Whether a value is NULL."""

    part: Scalar
    type: str = "BOOLEAN"


Scalar = Ref | Constant | Call | Compare | Logic | Not | IsNull
TRUE, FALSE = Constant("true", "BOOLEAN"), Constant("false", "BOOLEAN")
TRUTH = "coalesce({0}, false)"
UNKNOWN = Constant("CAST(NULL AS BOOLEAN)", "BOOLEAN")
_TEXTS = re.compile(r"'[^']*'")
_MAY_BE_NULL = re.compile(r"\bnull\b|/|%|\btry_cast\b|\bjson\b|->", re.IGNORECASE)
"""What may make a constant NULL: NULL itself, a division by zero, a cast of what does not fit, JSON's null."""


def parts_of(scalar: Scalar) -> tuple[Scalar, ...]:
    """The expressions directly inside one."""
    match scalar:
        case Call(arguments=parts) | Logic(parts=parts):
            return parts
        case Compare(left=left, right=right):
            return left, right
        case Not(part=part) | IsNull(part=part):
            return (part,)
    return ()


def with_parts(scalar: Scalar, parts: Sequence[Scalar]) -> Scalar:
    """The same expression over other parts, as many as it has."""
    match scalar:
        case Call():
            return replace(scalar, arguments=tuple(parts))
        case Logic():
            return replace(scalar, parts=tuple(parts))
        case Compare():
            return replace(scalar, left=parts[0], right=parts[1])
        case Not() | IsNull():
            return replace(scalar, part=parts[0])
    return scalar


def walk(scalar: Scalar) -> Iterator[Scalar]:
    """An expression and all inside it, outermost first."""
    waiting = [scalar]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(parts_of(found))


def columns_of(*scalars: Scalar) -> frozenset[Column]:
    """The columns that expressions read."""
    return frozenset[Column]().union(*(scalar.columns for scalar in scalars))


def cast(value: Scalar, type: str) -> Scalar:
    """A value in a type that it may not have."""
    return value if value.type == type else Call(f"CAST({{0}} AS {type})", (value,), type, strict=True)


def null(type: str) -> Constant:
    """NULL of a type."""
    return Constant(f"CAST(NULL AS {type})", type)


def can_fail(scalar: Scalar) -> bool:
    """Whether some row makes an expression raise an error."""
    return any(isinstance(part, Call) and part.can_fail for part in walk(scalar))


def function_name(form: str) -> str:
    """The function that a form calls, in lower case; empty for an operator."""
    name = form.partition("(")[0].strip().lower().rpartition(".")[2]
    return name if name.replace("_", "a").isalnum() else ""


def transform(scalar: Scalar, change: Callable[[Scalar], Scalar]) -> Scalar:
    """An expression with each part replaced by `change(part)`, innermost first."""
    parts = parts_of(scalar)
    changed = tuple(transform(part, change) for part in parts)
    return change(scalar if changed == parts else with_parts(scalar, changed))


def substitute(scalar: Scalar, values: Mapping[Column, Scalar]) -> Scalar:
    """An expression with columns replaced by expressions of the same type."""
    return transform(scalar, lambda part: values.get(part.column, part) if isinstance(part, Ref) else part)


def conjunction(parts: Sequence[Scalar]) -> Scalar:
    """AND of conditions, without nested ANDs, TRUE and repetitions."""
    flat = tuple(dict.fromkeys(one for part in parts for one in conjuncts(part)))
    return TRUE if not flat else flat[0] if len(flat) == 1 else Logic("AND", flat)


def conjuncts(condition: Scalar) -> tuple[Scalar, ...]:
    """The conditions that are all met exactly where this one is."""
    if condition == TRUE:
        return ()
    if isinstance(condition, Logic) and condition.word == "AND":
        return tuple(one for part in condition.parts for one in conjuncts(part))
    return (condition,)


def truth(condition: Scalar) -> Call:
    """Whether a condition is true: false where it is NULL."""
    return Call(TRUTH, (condition,), "BOOLEAN", can_fail=False)


def is_never_null(scalar: Scalar, columns: frozenset[Column]) -> bool:
    """Whether an expression has a value where these columns have one."""
    match scalar:
        case Ref(column=column):
            return column in columns
        case Constant(sql=sql):
            return _MAY_BE_NULL.search(_TEXTS.sub("", sql)) is None
        case IsNull():
            return True
        case Call(form=form):
            return form == TRUTH
        case Compare() | Logic() | Not():
            known = isinstance(scalar, Compare) and scalar.operator in NULL_AWARE
            return known or all(is_never_null(part, columns) for part in parts_of(scalar))


def is_null_where(scalar: Scalar, columns: frozenset[Column]) -> bool:
    """Whether an expression is surely NULL where all these columns are NULL."""
    match scalar:
        case Ref(column=column):
            return column in columns
        case Constant(sql=sql):
            return sql.upper() == "NULL" or sql == null(scalar.type).sql
        case Call(strict=True) | Not():
            return any(is_null_where(part, columns) for part in parts_of(scalar))
        case Compare(operator=operator):
            return operator not in NULL_AWARE and any(is_null_where(part, columns) for part in parts_of(scalar))
        case Logic():
            return all(is_null_where(part, columns) for part in scalar.parts)
    return False


def rejects_nulls(condition: Scalar, columns: frozenset[Column]) -> bool:
    """Whether a condition is surely not true where all these columns are NULL."""
    match condition:
        case Logic(word="AND", parts=parts):
            return any(rejects_nulls(part, columns) for part in parts)
        case Logic(word="OR", parts=parts):
            return all(rejects_nulls(part, columns) for part in parts)
        case Not(part=IsNull(part=part)):
            return is_null_where(part, columns)
        case Compare(operator="IS NOT DISTINCT FROM", left=left, right=right):
            return any(is_null_where(a, columns) and _is_value(b) for a, b in ((left, right), (right, left)))
    return condition == FALSE or is_null_where(condition, columns)


def _is_value(scalar: Scalar) -> bool:
    """Whether an expression is a constant that is surely not NULL: CAST(NULL AS ...) is a constant too."""
    return isinstance(scalar, Constant) and is_never_null(scalar, frozenset())

"""Comparisons with the clock: which functions read it, and which expressions only grow while it goes on.

A *temporal condition* compares an expression of columns with an expression of the clock that only grows. The rules of
the algebra see the latter as a constant, for no row decides it. The cut finds such constants again (`ClockValue`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlfront.planner.algebra.join_sides import CommonType
from sqlfront.planner.algebra.rewriting import rewrite
from sqlfront.planner.algebra.scalars import (
    MIRRORED,
    NEGATED,
    Call,
    Compare,
    Constant,
    Not,
    Operator,
    Scalar,
    cast,
    columns_of,
    conjunction,
    conjuncts,
    function_name,
    transform,
    walk,
)
from sqlfront.planner.algebra.terms import Filter, Join, Term
from sqlfront.planner.algebra.to_sql import scalar_sql

BETWEEN = "{0} BETWEEN {1} AND {2}"
VALUE = '"clock"'
"""The column that has the clock's value, a TIMESTAMP WITH TIME ZONE, where DuckDB computes an expression of it."""
FUNCTIONS = frozenset(
    (
        *("now", "get_current_timestamp", "transaction_timestamp", "current_timestamp"),
        *("localtimestamp", "current_localtimestamp", "current_date", "today"),
    )
)
"""The functions of the clock whose value has a date; some are written without parentheses."""
_GROWING = frozenset(("date_trunc", "datetrunc", "time_bucket", "epoch", "epoch_ms", "epoch_us", "epoch_ns", "year"))
"""Functions that grow with their one argument that is no constant."""
_INTERVAL = re.compile(r"\(INTERVAL '?\d+'? ?(\w+)'?\)", re.IGNORECASE)
_WORD = re.compile(r"'[^']*'|([A-Za-z_]+)")
_HOURS = frozenset(("microsecond", "millisecond", "second", "minute", "hour"))
_DAYS = frozenset(("day", "week"))
_STEADY = _GROWING | {"", "cast", "as", "date", "timestamp", "with", "time", "zone"}
_COMPARED: tuple[Operator, ...] = ("<", "<=", ">", ">=", "=")
_ZONE = "timezone"

ClockValues = Mapping[Constant, str]
"""The constants that stand for expressions of the clock, each with DuckDB SQL that computes it from `VALUE`."""


@dataclass(frozen=True)
class Timed:
    """One comparison of an expression of columns with an expression of the clock, in a type (None: in none that a key
    can have)."""

    value: Scalar
    operator: Operator
    clock: Constant
    type: str | None


def mark_clock(term: Term) -> tuple[Term, dict[Constant, str]]:
    """A term whose temporal conditions have constants in place of the clock, and these constants. A function of the
    clock stays where it is no part of such a condition."""
    found: dict[Constant, str] = {}

    def mark(scalar: Scalar) -> Scalar:
        if not reads_clock(scalar):
            return scalar
        constant = Constant(scalar_sql(scalar), scalar.type)
        found[constant] = scalar_sql(transform(scalar, _computed))
        return constant

    def marked(condition: Scalar) -> Scalar:
        if isinstance(condition, Not) and isinstance(condition.part, Compare):
            condition = replace(condition.part, operator=NEGATED[condition.part.operator])
        if not is_temporal(condition):
            return condition
        if isinstance(condition, Compare):
            return replace(condition, left=mark(condition.left), right=mark(condition.right))
        assert isinstance(condition, Call)
        return replace(condition, arguments=tuple(map(mark, condition.arguments)))

    def change(part: Term) -> Term:
        if isinstance(part, Filter | Join) and any(map(_is_clock, walk(part.condition))):
            return replace(part, condition=conjunction([marked(one) for one in conjuncts(part.condition)]))
        return part

    return rewrite(term, change), found


def comparisons(condition: Scalar, clock: ClockValues, common: CommonType) -> list[Timed | Scalar]:
    """The comparisons that a condition consists of, those with the clock as `Timed`."""
    if not (isinstance(condition, Call) and condition.form == BETWEEN):
        return [_timed(condition, clock, common)]
    value, low, high = condition.arguments
    both = common(value.type, low.type)
    type_ = None if both is None else common(both, high.type)
    pairs: list[tuple[Operator, Scalar]] = [(">=", low), ("<=", high)]
    return [_timed(Compare(operator, value, bound), clock, lambda *_: type_) for operator, bound in pairs]


def has_clock(scalar: Scalar, clock: ClockValues) -> bool:
    """Whether an expression has a constant that stands for the clock."""
    return any(part in clock for part in walk(scalar) if isinstance(part, Constant))


def is_temporal(condition: Scalar) -> bool:
    """Whether a condition compares columns with what grows with the clock."""
    if isinstance(condition, Compare):
        sides: tuple[Scalar, ...] = (condition.left, condition.right)
        if condition.operator not in _COMPARED:
            return False
    elif isinstance(condition, Call) and condition.form == BETWEEN:
        sides = condition.arguments
    else:
        return False
    clocked = [one for one in sides if reads_clock(one)]
    return bool(columns_of(condition)) and bool(clocked) and all(map(_grows, clocked))


def reads_clock(scalar: Scalar) -> bool:
    """Whether an expression calls a function of the clock that has a date."""
    return any(map(_is_clock, walk(scalar)))


def is_steady(value: str, type: str, *, fixed_zone: bool) -> bool:
    """Whether an expression of the clock, in SQL, surely never goes back. It may with months, as the 30th and the 31st
    of March are a month after the 28th of February; and with days and dates, where clocks are put back in autumn."""
    units = {unit.rstrip("s").lower() for unit in _INTERVAL.findall(value)}
    words = {word.lower() for word in _WORD.findall(_INTERVAL.sub("", value.replace(VALUE, "")))}
    if fixed_zone:
        return units <= _HOURS | _DAYS and words <= _STEADY
    return units <= _HOURS and not words and type == "TIMESTAMP WITH TIME ZONE"


def _grows(scalar: Scalar) -> bool:
    """Whether an expression is the clock, or grows with it: a sum with a constant, a cast, a part of the time."""
    if not isinstance(scalar, Call) or columns_of(scalar):
        return False
    if _is_clock(scalar):
        return True
    reading = [one for one in scalar.arguments if reads_clock(one)]
    if len(reading) != 1 or not _grows(reading[0]):
        return False
    if scalar.form == "{0} - {1}":
        return scalar.arguments[0] == reading[0] and scalar.type != "INTERVAL"
    if scalar.form.startswith("CAST({0} AS "):
        return scalar.type.startswith(("DATE", "TIMESTAMP"))
    name = function_name(scalar.form)
    return scalar.form in ("{0} + {1}", "{0} AT TIME ZONE {1}") or name in _GROWING or name == _ZONE


def _is_clock(scalar: Scalar) -> bool:
    if not isinstance(scalar, Call) or scalar.arguments:
        return False
    return (function_name(scalar.form) or scalar.form.lower()) in FUNCTIONS


def _computed(scalar: Scalar) -> Scalar:
    """A function of the clock as DuckDB computes it from the clock's value."""
    if not _is_clock(scalar):
        return scalar
    value = Constant(VALUE, "TIMESTAMP WITH TIME ZONE")
    return value if scalar.type == value.type else Call(f"CAST({{0}} AS {scalar.type})", (value,), scalar.type)


def _timed(condition: Scalar, clock: ClockValues, common: CommonType) -> Timed | Scalar:
    if not isinstance(condition, Compare):
        return condition
    type_ = common(condition.left.type, condition.right.type)
    for value, operator, other in (
        (condition.left, condition.operator, condition.right),
        (condition.right, MIRRORED[condition.operator], condition.left),
    ):
        if isinstance(other, Constant) and other in clock:
            return Timed(value, operator, other, type_)
    if type_ is None:
        return condition
    return replace(condition, left=cast(condition.left, type_), right=cast(condition.right, type_))

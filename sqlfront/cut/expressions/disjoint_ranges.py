"""OR of conditions as alternatives that have nothing in common.

`x < y - 5 OR x > y + 5` compares x - y with two constants: it is less than -5, or more than 5. Ranges that overlap are
one. So the pairs that meet the OR are those of one range and those of the other, each once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from sqlfront.binding.scalar_types import BETWEEN
from sqlfront.cut.expressions.scalar_forms import ADD, NEGATE, SUBTRACT, is_cast
from sqlfront.cut.expressions.separated_sides import ABSOLUTE, AtomsOf, Part, counted_units, interval_of
from sqlfront.cut.expressions.value_types import ComparedTypes, is_exact_number, is_lossless
from sqlfront.planner.algebra.scalars import MIRRORED, Call, Compare, Logic, Not, Scalar, columns_of, conjuncts
from sqlfront.planner.algebra.to_sql import scalar_sql

_MOMENTS = ("DATE", "TIMESTAMP")


@dataclass(frozen=True)
class _Bound:
    """A bound of a difference: a constant, whether the difference may equal it, and the comparison that says so."""

    value: Any
    closed: bool
    condition: Compare


@dataclass(frozen=True)
class Difference:
    """A sum of signed expressions of one atom each, and its bound: from below if `is_lower`, one that it may equal if
    `closed`."""

    parts: tuple[Part, ...]
    bound: Any
    is_lower: bool
    closed: bool


@dataclass(frozen=True)
class _Range:
    """The values of a difference between two bounds; None: there is no bound."""

    lower: _Bound | None
    upper: _Bound | None

    def reaches(self, other: _Range) -> bool:
        """Whether a range that begins no earlier begins within this one, or next to it."""
        if self.upper is None or other.lower is None:
            return True
        if self.upper.value == other.lower.value:
            return self.upper.closed or other.lower.closed
        return bool(self.upper.value > other.lower.value)

    @property
    def is_empty(self) -> bool:
        if self.lower is None or self.upper is None or self.lower.value < self.upper.value:
            return False
        return self.lower.value > self.upper.value or not (self.lower.closed and self.upper.closed)

    @property
    def conditions(self) -> list[Scalar]:
        if self.lower is not None and self.upper is not None and self.lower.value == self.upper.value:
            return [replace(self.lower.condition, operator="=")]
        return [bound.condition for bound in (self.lower, self.upper) if bound is not None]


def disjoint_ranges(condition: Scalar, atoms_of: AtomsOf, types: ComparedTypes) -> list[list[Scalar]] | None:
    """The conditions of each of several ranges, of which a pair of rows that meets the condition meets exactly one.
    None if the condition is no OR of comparisons of one difference with constants, or a single range."""
    every = alternatives(condition)
    if len(every) < 2 or len(atoms_of(condition)) != 2:
        return None
    differences = _Differences(atoms_of, types)
    found = [differences.range_of(one) for one in every]
    ranges = [one for _, one in filter(None, found)]
    if len(ranges) < len(found) or len({key for key, _ in filter(None, found)}) > 1:
        return None
    values = {type(bound.value) for one in ranges for bound in (one.lower, one.upper) if bound is not None}
    if not (values <= {int, Decimal} or values == {timedelta}):
        return None
    merged = _merged(ranges)
    return [one.conditions for one in merged] if len(merged) > 1 else None


def difference_of(condition: Scalar, atoms_of: AtomsOf, types: ComparedTypes) -> Difference | None:
    """An inequality as a bound of a sum; None of any other condition, and if a part is not exact."""
    found = _Differences(atoms_of, types).bound_of(condition)
    if found is None:
        return None
    parts, bound, is_lower = found
    return Difference(tuple(sorted(parts, key=str)), bound.value, is_lower, bound.closed)


def bounds_of(condition: Scalar) -> tuple[Scalar, ...]:
    """BETWEEN as two comparisons; any other condition as it is."""
    if isinstance(condition, Call) and condition.form == BETWEEN:
        value, low, high = condition.arguments
        return Compare("<=", low, value), Compare("<=", value, high)
    return (condition,)


def _both_bounds(condition: Scalar) -> tuple[Scalar, ...]:
    """An equality as its two bounds; any other condition as it is."""
    if isinstance(condition, Compare) and condition.operator == "=":
        return replace(condition, operator="<="), replace(condition, operator=">=")
    return (condition,)


def alternatives(condition: Scalar) -> list[Scalar]:
    """The parts of an OR; abs(x) > c, NOT BETWEEN and IN of a list are such. None of any other condition."""
    match condition:
        case Logic(word="OR", parts=parts):
            return [one for part in parts for one in alternatives(part) or [part]]
        case Not(part=Call(form=form, arguments=(value, low, high))) if form == BETWEEN:
            return [Compare("<", value, low), Compare(">", value, high)]
        case Compare(operator=">" | ">=" as operator, left=Call(form=form, arguments=(inner,))) if form == ABSOLUTE:
            negated = Call(NEGATE, (inner,), inner.type, strict=True, can_fail=False)
            return [Compare(operator, inner, condition.right), Compare(operator, negated, condition.right)]
        case Call(form=form, arguments=(value, *items)) if form.startswith("{0} IN ({1}"):
            return [Compare("=", value, one) for one in items] if {one.type for one in items} == {value.type} else []
        case Compare(operator="<" | "<=", right=Call(form=form)) if form == ABSOLUTE:
            return alternatives(Compare(MIRRORED[condition.operator], condition.right, condition.left))
    return []


def _merged(ranges: list[_Range]) -> list[_Range]:
    """Ranges that have nothing in common, with the values of all of these."""
    unbounded = [one for one in ranges if one.lower is None]
    bounded = [(one.lower.value, not one.lower.closed, number, one) for number, one in enumerate(ranges) if one.lower]
    found: list[_Range] = []
    for one in (*unbounded, *(one for *_, one in sorted(bounded, key=lambda item: item[:3]))):
        if found and found[-1].reaches(one):
            found[-1] = _Range(found[-1].lower, _later(found[-1].upper, one.upper))
        else:
            found.append(one)
    return found


def _later(one: _Bound | None, other: _Bound | None) -> _Bound | None:
    if one is None or other is None:
        return None
    return max(one, other, key=lambda bound: (bound.value, bound.closed))


class _Differences:
    """Comparisons as ranges of a sum of expressions of one atom each."""

    def __init__(self, atoms_of: AtomsOf, types: ComparedTypes) -> None:
        self._atoms_of, self._types = atoms_of, types

    def range_of(self, condition: Scalar) -> tuple[frozenset[Part], _Range] | None:
        """The sum that comparisons bound, and the range that they leave it."""
        key, lower, upper = None, None, None
        for one in (test for part in conjuncts(condition) for bound in bounds_of(part) for test in _both_bounds(bound)):
            found = self.bound_of(one)
            if found is None or key not in (None, found[0]):
                return None
            key, bound, is_lower = found
            if (lower if is_lower else upper) is not None:
                return None
            lower, upper = (bound, upper) if is_lower else (lower, bound)
        found_range = _Range(lower, upper)
        return None if key is None or found_range.is_empty else (key, found_range)

    def bound_of(self, one: Scalar) -> tuple[frozenset[Part], _Bound, bool] | None:
        """The sum that a comparison bounds, the bound, and whether it is one from below."""
        if not isinstance(one, Compare) or one.operator not in ("<", "<=", ">", ">="):
            return None
        left, right = self._linear(interval_of(one.left)), self._linear(interval_of(one.right))
        if left is None or right is None:
            return None
        parts = [*left[0], *((-sign, part) for sign, part in right[0])]
        constants = [*((-sign, value) for sign, value in left[1]), *right[1]]
        are_lengths = [isinstance(value, timedelta) for _, value in constants]
        of_moments = any(are_lengths) or any(part.type == "TIMESTAMP" for _, part in parts)
        if len(set(parts)) < max(1, len(parts)) or (of_moments and not all(are_lengths)):
            return None
        total = sum((sign * value for sign, value in constants), timedelta() if of_moments else 0)
        is_lower = one.operator in (">", ">=")
        sign = min(parts, key=lambda part: scalar_sql(part[1]))[0]
        key = frozenset((sign * own, part) for own, part in parts)
        return key, _Bound(sign * total, one.operator in ("<=", ">="), one), is_lower == (sign > 0)

    def _linear(self, value: Scalar) -> tuple[list[Part], list[tuple[int, Any]]] | None:
        """A sum as its parts: expressions that each read one atom, without their constants, and the constants."""
        if not columns_of(value):
            if value.type == "INTERVAL" and not self._types.has_no_months(value):
                return None
            constant = self._types.evaluated(value)
            is_length = isinstance(constant, (int, Decimal, timedelta)) and not isinstance(constant, bool)
            return ([], [(1, constant)]) if is_length else None
        if not (is_exact_number(value.type) or value.type in (*_MOMENTS, "INTERVAL")):
            return None
        if (numbers := counted_units(value, self._atoms_of)) is not None:
            return [(1, numbers[0]), (-1, numbers[1])], []
        if isinstance(value, Call):
            if value.form in (ADD, SUBTRACT, NEGATE):
                found = [self._linear(part) for part in value.arguments]
                if all(found):
                    return self._added(value.form, [one for one in found if one is not None])
            if is_cast(value) and is_exact_number(value.type) and is_lossless(value.arguments[0].type, value.type):
                return self._linear(value.arguments[0])
        return ([(1, value)], []) if len(self._atoms_of(value)) == 1 and value.type != "INTERVAL" else None

    def _added(self, form: str, found: list[Any]) -> tuple[list[Part], list[tuple[int, Any]]]:
        signs = (1, 1) if form == ADD else (1, -1) if form == SUBTRACT else (-1,)
        parts = [(sign * own, part) for sign, (some, _) in zip(signs, found) for own, part in some]
        constants = [(sign * own, value) for sign, (_, some) in zip(signs, found) for own, value in some]
        return parts, constants

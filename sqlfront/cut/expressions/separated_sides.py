"""Comparisons whose sides mix tables, as comparisons of an expression of one table with an expression of another.

`a - b <= 5` is `a <= b + 5`, and `abs(a - b) <= c` is two such comparisons: one range, whichever side a change has. The
new sides are sums of exact numbers, in a type so wide that none overflows: BIGINT for INTEGERs, HUGEINT for BIGINTs. So
they compare as the numbers themselves do. DuckDB's own difference may overflow, which is an error there alone. Dates
are their numbers of days, as DuckDB subtracts them; of timestamps a difference that is compared with an INTERVAL of
days and parts of days becomes a sum. date_diff is the difference of two numbers, of the hours or months since 1970.

Left as they are: FLOAT and DOUBLE, which are rounded, and differences that commonly are errors: those of unsigned
numbers, TINYINT and SMALLINT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlfront.binding.collation_types import INTERVAL_KEY
from sqlfront.cut.expressions.scalar_forms import ADD, NEGATE, SUBTRACT, is_cast
from sqlfront.cut.expressions.value_types import (
    INTEGER_BITS,
    ComparedTypes,
    decimal_parts,
    is_exact_number,
    is_lossless,
)
from sqlfront.planner.algebra.scalars import MIRRORED, Call, Compare, Constant, Operator, Scalar, function_name

COMPARED = ("=", "<>", "<", "<=", ">", ">=")
ABSOLUTE = "abs({0})"
FIRST_DAY = Constant("DATE '1970-01-01'", "DATE")
_COUNTED = ("date_diff", "datediff")
_UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "month", "quarter", "year")
"""Units whose number date_diff subtracts; it counts weeks before 1970 in another way."""
WIDE = ("INTEGER", "BIGINT", "HUGEINT")
"""Integers of so many bits that an overflow of a difference is rare."""

AtomsOf = Callable[[Scalar], list[str]]
Part = tuple[int, Scalar]
"""A sign and an expression of one atom, or of none."""


def separated(condition: Scalar, atoms_of: AtomsOf, types: ComparedTypes) -> list[Scalar]:
    """The comparisons that are all met exactly where this one is; some may be separated further. None at all, if the
    condition mixes no tables on a side, or has no such form."""
    if not isinstance(condition, Compare) or condition.operator not in COMPARED:
        return []
    if all(len(atoms_of(side)) <= 1 for side in (condition.left, condition.right)):
        return []
    for one in (condition, Compare(MIRRORED[condition.operator], condition.right, condition.left)):
        if found := without_abs(one) or _of_moments(one, atoms_of, types):
            return found
    apart = _Separation(atoms_of).of_numbers(condition)
    return [] if apart is None else [apart]


def without_abs(one: Compare) -> list[Scalar]:
    """abs(x) <= c as x <= c and -x <= c."""
    match one:
        case Compare(operator="<" | "<=" as operator, left=Call(form=form, arguments=(inner,))) if form == ABSOLUTE:
            return [Compare(operator, inner, one.right), Compare(operator, _negated(inner), one.right)]
    return []


def _of_moments(one: Compare, atoms_of: AtomsOf, types: ComparedTypes) -> list[Scalar]:
    """x - y <= INTERVAL as x <= y + INTERVAL."""
    interval = interval_of(one.right)
    match interval_of(one.left):
        case Call(form=form, arguments=(x, y)) if form == SUBTRACT:
            is_length = interval.type == "INTERVAL" and not atoms_of(interval) and types.has_no_months(interval)
            are_moments = "TIMESTAMP" in (x.type, y.type) and {x.type, y.type} <= {"DATE", "TIMESTAMP"}
            if is_length and are_moments and len(atoms_of(x)) == len(atoms_of(y)) == 1:
                return [Compare(one.operator, x, Call(ADD, (y, interval), "TIMESTAMP", strict=True))]
    return []


def interval_of(value: Scalar) -> Scalar:
    """An INTERVAL in place of the key by which it is compared."""
    return value.arguments[0] if isinstance(value, Call) and value.form == INTERVAL_KEY else value


def counted_units(value: Scalar, atoms_of: AtomsOf) -> tuple[Scalar, Scalar] | None:
    """Of date_diff over two atoms the numbers of the later and of the earlier hour, month or other unit, which it
    counts from 1970; None of any other expression."""
    match value:
        case Call(form=form, arguments=(Constant(sql=sql) as part, x, y)) if function_name(form) in _COUNTED:
            are_moments = {x.type, y.type} <= {"DATE", "TIMESTAMP"} and len(atoms_of(x)) == len(atoms_of(y)) == 1
            if sql.strip("'").casefold().removesuffix("s") in _UNITS and are_moments and len(atoms_of(value)) == 2:
                first = {kind: Constant(f"{kind} '1970-01-01'", kind) for kind in (x.type, y.type)}
                later, earlier = (replace(value, arguments=(part, first[one.type], one)) for one in (y, x))
                return later, earlier
    return None


class _Separation:
    """Sums of exact numbers, taken apart."""

    def __init__(self, atoms_of: AtomsOf) -> None:
        self._atoms_of = atoms_of

    def of_numbers(self, one: Compare) -> Compare | None:
        """A comparison of sums over two atoms as one of a sum over each."""
        left, right = self._linear(one.left), self._linear(one.right)
        if left is None or right is None:
            return None
        parts, operator = [*left, *_opposite(right)], one.operator
        atoms = dict.fromkeys(atom for _, part in parts for atom in self._atoms_of(part))
        added = next((atom for sign, part in parts for atom in self._atoms_of(part) if sign > 0), None)
        if len(atoms) != 2:
            return None
        if added is None:
            return self._compared(MIRRORED[operator], _opposite(parts), next(iter(atoms)))
        return self._compared(operator, parts, added)

    def _compared(self, operator: Operator, parts: Sequence[Part], atom: str) -> Compare | None:
        """The comparison of parts with 0 as one of the parts of an atom with all others."""
        mine = [(sign, part) for sign, part in parts if self._atoms_of(part) == [atom]]
        others = _opposite([(sign, part) for sign, part in parts if self._atoms_of(part) != [atom]])
        left, right = self._sum(mine), self._sum(others)
        return None if left is None or right is None else Compare(operator, left, right)

    def _linear(self, value: Scalar) -> list[Part] | None:
        """An exact number as a sum of expressions of one atom or none; None if it is no such sum."""
        match value:
            case Call(form=form, arguments=(x, y)) if form == SUBTRACT and x.type == y.type == "DATE":
                days = [_days(x), _days(y)]
                return [(1, days[0]), (-1, days[1])] if all(self._is_single(day) for day in days) else None
        if not is_exact_number(value.type):
            return None
        if self._is_single(value):
            return [(1, value)]
        if (numbers := counted_units(value, self._atoms_of)) is not None:
            return [(1, numbers[0]), (-1, numbers[1])]
        if not isinstance(value, Call) or not (value.type in WIDE or decimal_parts(value.type)):
            return None
        if is_cast(value):
            [inner] = value.arguments
            return self._linear(inner) if is_exact_number(inner.type) and is_lossless(inner.type, value.type) else None
        if value.form not in (ADD, SUBTRACT, NEGATE):
            return None
        first, *rest = map(self._linear, value.arguments)
        if first is None or None in rest:
            return None
        if value.form == NEGATE:
            return _opposite(first)
        second = rest[0] or []
        return [*first, *(second if value.form == ADD else _opposite(second))]

    def _is_single(self, value: Scalar) -> bool:
        return len(self._atoms_of(value)) <= 1

    def _sum(self, parts: Sequence[Part]) -> Scalar | None:
        """The sum of parts in a type in which nothing overflows; None if DuckDB has no such type."""
        ordered = sorted(parts, key=lambda part: (part[0] < 0, not self._atoms_of(part[1])))
        kind = _wide_type(ordered)
        if kind is None:
            return None
        [(sign, total), *rest] = [(sign, self._in_type(part, kind)) for sign, part in ordered]
        if sign < 0:
            total = _negated(total)
        elif not rest:
            return ordered[0][1]
        for sign, part in rest:
            form = ADD if sign > 0 else SUBTRACT
            total = Call(form, (total, part), _sum_type(kind, total.type), strict=True, can_fail=False)
        return total

    def _in_type(self, value: Scalar, kind: str) -> Scalar:
        """A part in the type of the sum; a whole number without columns takes it by itself."""
        if value.type == kind or (kind in INTEGER_BITS and not self._atoms_of(value)):
            return value
        return Call(f"CAST({{0}} AS {kind})", (value,), kind, strict=True, can_fail=False)


def _opposite(parts: Sequence[Part]) -> list[Part]:
    return [(-sign, part) for sign, part in parts]


def _negated(value: Scalar) -> Scalar:
    return Call(NEGATE, (value,), value.type, strict=True, can_fail=False)


def _days(date: Scalar) -> Scalar:
    """The number of a date's day."""
    return Call(SUBTRACT, (date, FIRST_DAY), "BIGINT", strict=True, can_fail=False)


def _wide_type(parts: Sequence[Part]) -> str | None:
    """A type in which sums of these parts, all of which it has, do not overflow."""
    types = [part.type for _, part in parts]
    decimals = [decimal_parts(kind) for kind in types]
    if not any(decimals):
        bound = sum(2 ** _bits(part) for _, part in parts)
        return "BIGINT" if bound < 2**63 else "HUGEINT" if bound < 2**127 else None
    scale = max(scale for _, scale in filter(None, decimals))
    whole = max(
        len(str(2 ** INTEGER_BITS[kind][1])) if one is None else one[0] - one[1] for kind, one in zip(types, decimals)
    )
    width = whole + scale
    return f"DECIMAL({width},{scale})" if width + len(parts) - 1 <= 38 else None


def _bits(value: Scalar) -> int:
    """Of how many bits an integer is, without its sign."""
    is_day = isinstance(value, Call) and value.form == SUBTRACT and value.arguments[1] == FIRST_DAY
    return 32 if is_day else INTEGER_BITS[value.type][1]


def _sum_type(kind: str, total: str) -> str:
    """The type of a sum with a number of a type: of DECIMALs it has one digit more than the wider of the two."""
    parts = decimal_parts(total)
    return kind if parts is None else f"DECIMAL({parts[0] + 1},{parts[1]})"

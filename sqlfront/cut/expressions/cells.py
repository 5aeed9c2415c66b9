"""A cycle of comparisons, `x < y AND y < z AND z < x + w`, as chains of comparisons within cells of width w.

Each value v has a cell, the greatest whole number of at most v / w. The values of a match lie in one cell, or in two
that follow each other. Where z is in the cell of x, it is less than x + w. Where z is in the next cell, so are all
values behind one of the others, and no value before it: that these two are in order need not be tested. So a match
meets the conditions of exactly one of n alternatives, each of which compares n columns in a chain, without a cycle.

So is a window of a value of two tables, beside which others are compared: the values of a match lie in one cell, or in
two that follow each other, either of them first. Each case has one bound of the window at most: values of one cell are
less than the width apart, and those of two cells are in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise, permutations

from sqlfront.cut.expressions.disjoint_ranges import Difference, bounds_of, difference_of
from sqlfront.cut.expressions.scalar_forms import ADD, CELL, SUBTRACT, call
from sqlfront.cut.expressions.separated_sides import AtomsOf, without_abs
from sqlfront.cut.expressions.value_types import INTEGER_BITS, ComparedTypes, is_lossless
from sqlfront.planner.algebra.scalars import Compare, Constant, Scalar, cast, conjuncts

MOST_VALUES = 4
_MICROSECOND = timedelta(microseconds=1)
_OR_INFINITE = (
    "coalesce({0}, CASE WHEN {1} > TIMESTAMP '2000-01-01' THEN CAST(4611686018427387908 AS BIGINT) "
    "WHEN {1} IS NOT NULL THEN CAST(-4611686018427387908 AS BIGINT) END)"
)
"""The cell of a timestamp. Infinite ones have numbers beyond the cells of all others, which are 2 wide at least."""


@dataclass(frozen=True)
class _Step:
    """That `lower` is less than, or if not `strict` at most, `upper` and `width` more."""

    lower: Scalar
    upper: Scalar
    strict: bool
    width: int | timedelta
    condition: Scalar


def chains_in_cells(conditions: Sequence[Scalar], atoms_of: AtomsOf, types: ComparedTypes) -> list[list[Scalar]] | None:
    """For each alternative the conditions that its rows meet. None if the comparisons of different atoms are no cycle
    of three or four values, one of each atom, whose only constant is positive; or if the values are not whole numbers
    that BIGINT holds, or TIMESTAMPs. O(values!)"""
    parts = _parts(conditions)
    compared = [one for one in parts if _is_compared(one, atoms_of)]
    steps = [_step(one, atoms_of, types) for one in compared]
    known = [one for one in steps if one is not None]
    if not known or len(known) < len(steps):
        return None
    rest = [one for one in parts if one not in compared]
    values = list(dict.fromkeys(value for one in known for value in (one.lower, one.upper)))
    if not 3 <= len(values) <= MOST_VALUES or len({*map(tuple, map(atoms_of, values))}) < len(values):
        return None
    cycle = next(_cycles(values, known), None)
    if cycle is None or not all(map(_is_cellular, values)):
        return None
    return [[*rest, *found] for found in _alternatives(cycle)]


def windows_in_cells(
    conditions: Sequence[Scalar], atoms_of: AtomsOf, types: ComparedTypes
) -> list[list[Scalar]] | None:
    """For each alternative the conditions that its rows meet. None if not just two atoms are compared, by the bounds of
    a window, each with a constant, and by two more comparisons; or if the window's values have no cells."""
    parts = _parts(conditions)
    compared = [one for one in parts if _is_compared(one, atoms_of)]
    if len({*map(tuple, map(atoms_of, compared))}) != 1 or len(atoms_of(compared[0])) != 2:
        return None
    steps = [one for one in (_step(test, atoms_of, types) for test in compared) if one is not None]
    for first in steps:
        up, back = (_tightest(steps, *ends) for ends in ((first.lower, first.upper), (first.upper, first.lower)))
        others = [one for one in compared if not any(one is step.condition for step in steps if _is_of(step, first))]
        if up is None or back is None or len(others) < 2 or not all(map(_is_cellular, (up.lower, up.upper))):
            continue
        if min(_whole(up.width), _whole(back.width)) >= 0 and _is_wide(max(up.width, back.width)):
            rest = [one for one in parts if one not in compared]
            return [[*rest, *others, *found] for found in _around(up, back)]
    return None


def _parts(conditions: Sequence[Scalar]) -> list[Scalar]:
    """Conditions, a window as its bounds."""
    every = [bound for condition in conditions for one in conjuncts(condition) for bound in bounds_of(one)]
    return [part for one in every for part in (isinstance(one, Compare) and without_abs(one)) or [one]]


def _is_of(one: _Step, other: _Step) -> bool:
    """Whether two steps compare the same values."""
    return {one.lower, one.upper} == {other.lower, other.upper}


def _around(up: _Step, back: _Step) -> Iterator[list[Scalar]]:
    """The conditions of matches whose values are in one cell, or one of them in the next."""
    width = max(_whole(up.width), _whole(back.width))
    low, high = _cells((up.lower, up.upper), (up, back))
    behind_low, behind_high = (call(ADD, "BIGINT", cell, Constant("1", "BIGINT")) for cell in (low, high))
    yield [*(one.condition for one in (up, back) if _whole(one.width) < width), Compare("=", low, high)]
    if _whole(back.width) > 0:
        yield [back.condition, Compare("=", behind_low, high)]
    if _whole(up.width) > 0:
        yield [up.condition, Compare("=", low, behind_high)]


def _is_compared(one: Scalar, atoms_of: AtomsOf) -> bool:
    """Whether a condition of two atoms or more is no equality."""
    return len(atoms_of(one)) > 1 and not (isinstance(one, Compare) and one.operator in ("=", "IS NOT DISTINCT FROM"))


def _step(one: Scalar, atoms_of: AtomsOf, types: ComparedTypes) -> _Step | None:
    """A comparison as the difference of two values, one of each atom, that a constant bounds from above."""
    found: Difference | None = difference_of(one, atoms_of, types)
    if found is None or len(found.parts) != 2:
        return None
    (sign, first), (other, second) = found.parts
    width = found.bound
    if sign == other or not isinstance(width, int | timedelta):
        return None
    if found.is_lower:
        sign, width = -sign, -width
    lower, upper = (first, second) if sign > 0 else (second, first)
    return _Step(lower, upper, not found.closed, width, one)


def _cycles(values: Sequence[Scalar], steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Cycles of all values from which all other comparisons follow: the steps upwards, then the one back."""
    for chain in permutations(values):
        up = [_tightest(steps, low, high) for low, high in pairwise(chain)]
        back = _tightest(steps, chain[-1], chain[0])
        cycle = [one for one in (*up, back) if one is not None]
        if len(cycle) < len(values) or any(one.width for one in cycle[:-1]) or not _is_wide(cycle[-1].width):
            continue
        if all(one in cycle or _follows(one, chain, cycle) for one in steps):
            yield cycle


def _tightest(steps: Sequence[_Step], lower: Scalar, upper: Scalar) -> _Step | None:
    """Of several comparisons of two values the one from which the others follow."""
    found = [one for one in steps if (one.lower, one.upper) == (lower, upper)]
    return min(found, key=lambda one: (one.width, not one.strict), default=None)


def _is_wide(width: int | timedelta) -> bool:
    """Whether cells of this width have numbers that do not overflow: a width of 1 has no match."""
    return 2 <= _whole(width) < 2**62


def _whole(width: int | timedelta) -> int:
    return width if isinstance(width, int) else width // _MICROSECOND


def _follows(one: _Step, chain: Sequence[Scalar], cycle: Sequence[_Step]) -> bool:
    """Whether a comparison follows from those of a cycle."""
    first, last = chain.index(one.lower), chain.index(one.upper)
    if first < last:
        strict, width = any(step.strict for step in cycle[first:last]), type(one.width)()
    else:
        strict, width = cycle[-1].strict, cycle[-1].width
    return one.width > width or (one.width == width and strict >= one.strict)  # type: ignore[operator]


def _is_cellular(value: Scalar) -> bool:
    is_whole = value.type in INTEGER_BITS and is_lossless(value.type, "BIGINT")
    return is_whole or value.type == "TIMESTAMP"


def _alternatives(cycle: Sequence[_Step]) -> Iterator[list[Scalar]]:
    """The conditions of matches whose first values, one to all of them, are in one cell, and the others in the next."""
    values = [one.lower for one in cycle]
    cells = _cells(values, cycle)
    for firsts in range(1, len(values) + 1):
        tested = [step.condition for number, step in enumerate(cycle, 1) if number != firsts]
        # The fewer values count as if they were in the cell of the others: these share their column between parts.
        is_late = 2 * firsts < len(values)
        early, late = (ADD, cells[:firsts]) if is_late else (SUBTRACT, cells[firsts:])
        one = Constant("1", "BIGINT")
        keys = [call(early, "BIGINT", cell, one) if cell in late else cell for cell in cells]
        yield [*tested, *(Compare("=", keys[0], key) for key in keys[1:])]


def _cells(values: Sequence[Scalar], steps: Sequence[_Step]) -> list[Scalar]:
    """The cells of values, as wide as the widest step. Infinite timestamps match each other where no step is strict."""
    width, is_closed = max(_whole(one.width) for one in steps), not any(one.strict for one in steps)
    return [_cell(value, width, infinite=is_closed) for value in values]


def _cell(value: Scalar, width: int, *, infinite: bool = False) -> Scalar:
    """The number of a value's cell. Infinite timestamps have none, or if `infinite` one that no other value has."""
    number = call("epoch_us({0})", "BIGINT", value) if value.type == "TIMESTAMP" else cast(value, "BIGINT")
    cell = call(CELL, "BIGINT", number, Constant(f"CAST({width} AS BIGINT)", "BIGINT"))
    return call(_OR_INFINITE, "BIGINT", cell, value) if infinite and value.type == "TIMESTAMP" else cell

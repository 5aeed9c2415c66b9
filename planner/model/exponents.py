"""Exponents of N as functions of epsilon: lines, the greatest or the least of several, and curves of lines, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.cost import Cost


@dataclass(frozen=True)
class Line:
    """constant + slope * epsilon."""

    constant: Fraction
    slope: Fraction

    def at(self, epsilon: Fraction) -> Fraction:
        return self.constant + self.slope * epsilon

    def __str__(self) -> str:
        """1, eps, 2-2eps."""
        if not self.slope:
            return str(self.constant)
        size = f"{abs(self.slope) if abs(self.slope) != 1 else ''}eps"
        sign = "-" if self.slope < 0 else "+" if self.constant else ""
        return f"{self.constant or ''}{sign}{size}"


@dataclass(frozen=True)
class Extreme:
    """The greatest or the least of several exponents."""

    kind: Literal["max", "min"]
    parts: tuple[Exponent, ...]

    def at(self, epsilon: Fraction) -> Fraction:
        found = [part.at(epsilon) for part in self.parts]
        return max(found) if self.kind == "max" else min(found)

    def __str__(self) -> str:
        """max(eps, 1-eps)."""
        return f"{self.kind}({', '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class Curve:
    """Lines from corner to corner, each an epsilon and the exponent there, from epsilon = 0 to 1."""

    corners: tuple[tuple[Fraction, Fraction], ...]

    @classmethod
    def through(cls, points: Iterable[tuple[Fraction, Fraction]]) -> Curve:
        """The curve through points in order, without those that lie on a line between their neighbours."""
        corners: list[tuple[Fraction, Fraction]] = []
        for point in points:
            while len(corners) > 1 and _slope(corners[-2], corners[-1]) == _slope(corners[-1], point):
                del corners[-1]
            corners.append(point)
        return cls(tuple(corners))

    def at(self, epsilon: Fraction) -> Fraction:
        for start, end in pairwise(self.corners):
            if epsilon <= end[0]:
                return start[1] + _slope(start, end) * (epsilon - start[0])
        raise ValueError(f"epsilon = {epsilon} is above 1")

    def plus(self, more: int) -> Curve:
        """The exponents of N^more times as many."""
        return Curve(tuple((epsilon, value + more) for epsilon, value in self.corners))

    def __str__(self) -> str:
        """1 at eps = 0, 2/3 at 1/3, 1 at 1/2, 1 at 1."""
        (start, first), *others = self.corners
        return ", ".join([f"{first} at eps = {start}", *(f"{value} at {epsilon}" for epsilon, value in others)])


Exponent = Line | Extreme | Curve


def _slope(start: tuple[Fraction, Fraction], end: tuple[Fraction, Fraction]) -> Fraction:
    return (end[1] - start[1]) / (end[0] - start[0])


def line(constant: int | Fraction, slope: int = 0) -> Line:
    """The exponent constant + slope * epsilon."""
    return Line(Fraction(constant), Fraction(slope))


def greatest(*parts: Exponent) -> Extreme:
    return Extreme("max", parts)


def least(*parts: Exponent) -> Extreme:
    return Extreme("min", parts)


EPSILON, REST = line(0, 1), line(1, -1)
MOST = greatest(EPSILON, REST)
LEAST_MORE = least(line(1, 1), line(2, -1))
"""1 + min(eps, 1-eps)."""


@dataclass(frozen=True)
class Exponents:
    """The exponents of a strategy: of building, of a change, of the delay, of the space, and of the rows at worst."""

    building: Exponent
    update: Exponent
    delay: Exponent
    space: Exponent
    rows: Fraction = Fraction(0)

    def cost(self, epsilon: float) -> Cost:
        """The cost at an epsilon. Between 0 and 1 it is amortised: changes pay for rebalances."""
        at = Fraction(str(epsilon))
        building, update, delay, space = (
            Bound(one.at(at)) for one in (self.building, self.update, self.delay, self.space)
        )
        return Cost(building, Bound(update.power, amortised=0 < epsilon < 1), delay, space)

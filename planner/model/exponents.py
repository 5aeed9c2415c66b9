"""Exponents of N as functions of epsilon: lines, and the greatest or the least of several, as data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
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


Exponent = Line | Extreme


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

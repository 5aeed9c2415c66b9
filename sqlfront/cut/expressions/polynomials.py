"""Polynomials: sums of products of one-table factors over the rows of a join."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from sqlfront.planner.algebra.scalars import Scalar

Part = tuple[str, Scalar]


@dataclass(frozen=True)
class Monomial:
    """coefficient * the values, over rows where all conditions hold.

    Values and conditions are (atom, expression); a value whose atom is "" scales another value. `guarding` has the
    conditions in the order of their evaluation: a condition is evaluated only where the ones before it are true.
    """

    coefficient: Fraction
    values: tuple[Part, ...] = ()
    guarding: tuple[Part, ...] = field(default=(), compare=False)
    conditions: frozenset[Part] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "conditions", frozenset(self.guarding))

    def times(self, other: Monomial) -> Monomial:
        """The product; the conditions of `self` guard the other's."""
        return Monomial(
            self.coefficient * other.coefficient,
            tuple(sorted(self.values + other.values, key=repr)),
            tuple(dict.fromkeys(self.guarding + other.guarding)),
        )

    def where(self, *conditions: Part) -> Monomial:
        """The same over the rows where these conditions hold too, which are evaluated last."""
        return self.times(Monomial(Fraction(1), (), conditions))


Polynomial = tuple[Monomial, ...]
ONE: Polynomial = (Monomial(Fraction(1)),)


def multiplied(left: Polynomial, right: Polynomial) -> Polynomial:
    """The product of two polynomials."""
    return combined(tuple(one.times(other) for one in left for other in right))


def scaled(polynomial: Polynomial, by: int | Fraction) -> Polynomial:
    return tuple(Monomial(one.coefficient * by, one.values, one.guarding) for one in polynomial)


def combined(polynomial: Polynomial) -> Polynomial:
    """Like terms added, zeros dropped, order kept."""
    sums: dict[tuple[tuple[Part, ...], frozenset[Part]], Monomial] = {}
    for one in polynomial:
        like = (one.values, one.conditions)
        former = sums.get(like, Monomial(Fraction(0), one.values, one.guarding))
        sums[like] = Monomial(former.coefficient + one.coefficient, one.values, former.guarding)
    return tuple(one for one in sums.values() if one.coefficient)

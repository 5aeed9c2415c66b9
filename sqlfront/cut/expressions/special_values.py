"""NaN and infinities in sums of DOUBLEs over several tables: the rows that have them are counted by polynomials.

A group's sum is NaN if a row adds NaN, or if rows add infinities of both signs; else it is the infinity that a row
adds. So only how often NaN, +inf and -inf come in has to be known (`Specials`). A row may count as both infinities,
whose sum is NaN. For the operands of a row:

    sum        each number counts in the rows where the other operand is there
    CASE p     [p] one + [not p] other
    product    signs decide, and 0 * inf is NaN: see below

The signs of a product are those of its operands, multiplied (`Signs`). Its five numbers are products of those of the
operands: the classes finite, 0, infinite and NaN are a semilattice under multiplication. With N, the rows that are
there,

    NaN = N - finite - nonzero + finite_nonzero
    both infinities = nonzero - finite_nonzero
    +inf less -inf = sign - finite_sign

A sum of several tables has no sign that is such a product. It is multiplied by finite numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sqlfront.cut.expressions.polynomials import ONE, Monomial, Polynomial, combined, multiplied, scaled
from sqlfront.cut.expressions.scalar_forms import call, equal
from sqlfront.planner.algebra.scalars import Compare, Constant, Logic, Scalar, cast

_INFINITY, _OPPOSITE = (Constant(f"CAST('{text}' AS DOUBLE)", "DOUBLE") for text in ("inf", "-inf"))
_ZERO = Constant("CAST(0 AS DOUBLE)", "DOUBLE")
_SIGN = "CASE WHEN {0} > {1} THEN 1 ELSE -1 END"
_HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Specials:
    """How often NaN, +inf and -inf come into an expression, at least once where they do."""

    nan: Polynomial = ()
    plus: Polynomial = ()
    minus: Polynomial = ()

    def __bool__(self) -> bool:
        return bool(self.nan or self.plus or self.minus)

    def times(self, rows: Polynomial) -> Specials:
        """The same over the rows that a polynomial counts."""
        return Specials(*(multiplied(rows, one) for one in (self.nan, self.plus, self.minus)))

    def with_others(self, other: Specials) -> Specials:
        return Specials(
            combined(self.nan + other.nan), combined(self.plus + other.plus), combined(self.minus + other.minus)
        )

    def negated(self) -> Specials:
        return Specials(self.nan, self.minus, self.plus)


@dataclass(frozen=True)
class Signs:
    """An expression's rows by sign: those where it is finite; where it is neither NaN nor 0; where both; the signs of
    the latter two, 1 or -1, added up."""

    finite: Polynomial
    nonzero: Polynomial
    finite_nonzero: Polynomial
    sign: Polynomial
    finite_sign: Polynomial

    def times(self, other: Signs) -> Signs:
        return Signs(*map(multiplied, self._all(), other._all()))

    def over(self, rows: Polynomial) -> Signs:
        """The same over the rows that a polynomial counts."""
        return Signs(*(multiplied(rows, one) for one in self._all()))

    def with_others(self, other: Signs) -> Signs:
        return Signs(*(combined(one + more) for one, more in zip(self._all(), other._all(), strict=True)))

    def negated(self) -> Signs:
        opposite = (scaled(self.sign, -1), scaled(self.finite_sign, -1))
        return Signs(self.finite, self.nonzero, self.finite_nonzero, *opposite)

    def specials(self, presence: Polynomial) -> Specials:
        """NaN and infinities among the rows where the expression is there."""
        infinite = self.nonzero + scaled(self.finite_nonzero, -1)
        more = self.sign + scaled(self.finite_sign, -1)
        nan = presence + scaled(self.finite + infinite, -1)
        return Specials(
            combined(nan),
            combined(scaled(infinite + more, _HALF)),
            combined(scaled(infinite + scaled(more, -1), _HALF)),
        )

    def _all(self) -> tuple[Polynomial, ...]:
        return self.finite, self.nonzero, self.finite_nonzero, self.sign, self.finite_sign


def is_finite(number: Scalar) -> Scalar:
    """The condition that a DOUBLE is neither NaN nor infinite."""
    return call("isfinite({0})", "BOOLEAN", cast(number, "DOUBLE"))


def leaf_specials(atom: str, value: Scalar) -> Specials:
    """Those of a value of one table that may be NaN or infinite."""
    number = cast(value, "DOUBLE")
    conditions = call("isnan({0})", "BOOLEAN", number), equal(number, _INFINITY), equal(number, _OPPOSITE)
    return Specials(*(_counted(atom, one) for one in conditions))


def leaf_signs(atom: str, value: Scalar, presence: Polynomial, may_be_special: bool) -> Signs:
    """The signs of a value of one table."""
    number = cast(value, "DOUBLE")
    nonzero: Scalar = Compare("<>", number, _ZERO)
    finite, conditions = presence, [nonzero, nonzero]
    if may_be_special:
        finite = _counted(atom, is_finite(number))
        is_number = Compare("<=", number, _INFINITY)  # NaN is greater than all numbers.
        conditions = [Logic("AND", (nonzero, one)) for one in (is_number, is_finite(number))]
    sign: Polynomial = (Monomial(Fraction(1), ((atom, call(_SIGN, "INTEGER", number, _ZERO)),)),)
    counted = [_counted(atom, one) for one in conditions]
    return Signs(finite, *counted, *(multiplied(one, sign) for one in counted))


def constant_signs(number: Fraction) -> Signs:
    nonzero = ONE if number else ()
    sign = scaled(nonzero, 1 if number > 0 else -1)
    return Signs(ONE, nonzero, nonzero, sign, sign)


def times_finite(specials: Specials, presence: Polynomial, signs: Signs) -> Specials:
    """Those of an expression times a number that is finite wherever it is there."""
    positive, negative = (
        combined(scaled(signs.finite_nonzero + scaled(signs.finite_sign, by), _HALF)) for by in (1, -1)
    )
    zero = combined(presence + scaled(signs.finite_nonzero, -1))
    infinite = multiplied(specials.plus + specials.minus, zero)
    kept, turned = specials.times(positive), specials.times(negative)
    return Specials(
        combined(multiplied(specials.nan, presence) + infinite),
        combined(kept.plus + turned.minus),
        combined(kept.minus + turned.plus),
    )


def _counted(atom: str, condition: Scalar) -> Polynomial:
    return (Monomial(Fraction(1), (), ((atom, condition),)),)

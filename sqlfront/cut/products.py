"""SUM arguments over several tables, multiplied out into products of one-table factors.

Every expression e becomes two polynomials: its value V, which counts as 0 where e is NULL, and its
presence N, which is 1 where e is not NULL and 0 elsewhere. They follow the expression:

    product    V = V1 * V2                    N = N1 * N2
    sum        V = V1 * N2 + N1 * V2          N = N1 * N2
    CASE p     V = [p] V1 + [not p] V2        N = [p] N1 + [not p] N2

so a row counts only where all that the expression uses is not NULL, as in SQL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlfront.binding.notes import Notes
from sqlfront.cut.expressions.scalar_forms import (
    DIVIDE,
    MULTIPLY,
    NEGATE,
    SUBTRACT,
    branches,
    call,
    evaluated,
    is_case,
    is_cast,
    is_not_null,
)
from sqlfront.cut.expressions.value_types import FLOATS, is_lossless
from sqlfront.cut.join_core import JoinCore
from sqlfront.planner.algebra.scalars import TRUE, Call, Compare, Constant, Logic, Scalar, can_fail, conjuncts

Part = tuple[str, Scalar]
ARGUMENT = Constant("v", "DOUBLE")
"""What a scaler (v * c, v / c) is applied to."""
_NULL_TYPE = '"NULL"'
_LARGEST_EXACT = 9_007_199_254_740_992  # every integer up to 2^53 is a DOUBLE


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


class Expander:
    """Multiplies out expressions over the atoms of a join."""

    def __init__(self, con: Any, core: JoinCore, never_null: Callable[[Scalar], bool], notes: Notes) -> None:
        self._con, self._core, self._never_null, self._notes = con, core, never_null, notes
        self.first_atom = core.atoms[0].name

    def expand(self, value: Scalar, floating: bool) -> tuple[Polynomial, Polynomial]:
        """(value, presence) of a numeric expression; `floating` when the whole argument is a DOUBLE.

        Raises NotSupportedError for what cannot be multiplied out.
        """
        atoms = self._core.atoms_of(value)
        if value.type == _NULL_TYPE:  # As CASE without a value in any branch is: it is never there, but may fail.
            if can_fail(value):
                raise self._refused(value)
            return (), ()
        if not atoms:
            return self._constant(value, floating)
        if len(atoms) == 1:
            return self.leaf(value)
        if floating and value.type == "FLOAT":
            why = "FLOAT arithmetic rounds every row to 24 bits, which a product of sums cannot follow"
            place = self._notes.place_of(value)
            raise self._notes.refusal("FLOAT arithmetic across tables", place, why, "cast to DOUBLE")
        match value:
            case Call(form="-{0}" | "+ {0}", arguments=(inner,)):
                total, presence = self.expand(inner, floating)
                return (_scaled(total, -1) if value.form == NEGATE else total), presence
            case Call(form="{0} + {1}" | "{0} - {1}" | "{0} * {1}", arguments=(left, right)):
                return self._binary(value.form, left, right, floating)
            case Call(form="{0} / {1}", arguments=(_, divisor)) if not self._core.atoms_of(divisor):
                return self._divided(value, floating)
            case Call() if is_case(value):
                return self._case(*branches(value), floating)
            case Call(form="if({0}, {1}, {2})", arguments=(condition, then, otherwise)):
                return self._case([(condition, then)], otherwise, floating)
            case Call(arguments=(inner,)) if is_cast(value) and _keeps_value(inner.type, value.type, floating):
                return self.expand(inner, floating)
        raise self._refused(value)

    def presence(self, value: Scalar) -> Polynomial:
        """1 where an expression of any type is not NULL."""
        atoms = self._core.atoms_of(value)
        if not atoms:
            return () if evaluated(self._con, value) is None else ONE
        return self.leaf(value)[1] if len(atoms) == 1 else self.expand(value, False)[1]

    def leaf(self, value: Scalar) -> tuple[Polynomial, Polynomial]:
        """An expression of one atom is a factor as it stands."""
        atom = self._core.atoms_of(value)[0]
        conditions = () if self._never_null(value) else ((atom, is_not_null(value)),)
        one = Monomial(Fraction(1), ((atom, value),), conditions)
        return (one,), (Monomial(Fraction(1), (), conditions),)

    def indicator(self, predicate: Scalar) -> Monomial:
        """1 where the predicate is true. Raises NotSupportedError unless it is an AND of one-table predicates."""
        conditions = []
        for conjunct in conjuncts(predicate):
            atoms = self._core.atoms_of(conjunct)
            if len(atoms) > 1:
                why = "each condition inside an aggregate must concern one table"
                hint = "split it with AND into conditions on one table each"
                place = self._notes.place_of(conjunct)
                raise self._notes.refusal("A condition over several tables", place, why, hint)
            conditions.append((atoms[0] if atoms else self.first_atom, conjunct))
        return Monomial(Fraction(1), (), tuple(dict.fromkeys(conditions)))

    def _binary(self, form: str, left: Scalar, right: Scalar, floating: bool) -> tuple[Polynomial, Polynomial]:
        (one, one_present), (other, other_present) = (self.expand(operand, floating) for operand in (left, right))
        present = multiplied(one_present, other_present)
        if form == MULTIPLY:
            return multiplied(one, other), present
        signed = _scaled(other, -1) if form == SUBTRACT else other
        return _combined(multiplied(one, other_present) + multiplied(one_present, signed)), present

    def _divided(self, value: Call, floating: bool) -> tuple[Polynomial, Polynomial]:
        dividend, divisor = value.arguments
        if not floating or not self._evaluate(divisor):
            raise self._refused(value)
        total, presence = self.expand(dividend, floating)
        scale = Monomial(Fraction(1), (("", call(DIVIDE, "DOUBLE", ARGUMENT, divisor)),))
        return multiplied(total, (scale,)), presence

    def _constant(self, value: Scalar, floating: bool) -> tuple[Polynomial, Polynomial]:
        number = self._evaluate(value)
        if number is None:
            return (), ()
        if floating and not (float(number).is_integer() and abs(float(number)) <= _LARGEST_EXACT):
            factor = Constant(f"CAST({float(number)!r} AS DOUBLE)", "DOUBLE")
            return (Monomial(Fraction(1), (("", call(MULTIPLY, "DOUBLE", ARGUMENT, factor)),)),), ONE
        return (Monomial(Fraction(number)),), ONE

    def _evaluate(self, value: Scalar) -> Decimal | float | None:
        """A constant's value; exact for integers and decimals."""
        number = evaluated(self._con, value)
        if number is None:
            return None
        if isinstance(number, (int, Decimal)):
            return Decimal(number)
        if isinstance(number, float) and math.isfinite(number):
            return number
        place = self._notes.place_of(value)
        raise self._notes.refusal("This constant", place, "it is no finite number", "use a number")

    def _case(
        self, checks: list[tuple[Scalar, Scalar]], otherwise: Scalar, floating: bool
    ) -> tuple[Polynomial, Polynomial]:
        value, presence = self.expand(otherwise, floating)
        for condition, then in reversed(checks):
            then_value, then_presence = self.expand(then, floating)
            yes = (self.indicator(condition),)
            no = self._negation(condition)
            value = _combined(multiplied(yes, then_value) + multiplied(no, value))
            if presence != then_presence:
                presence = _combined(multiplied(yes, then_presence) + multiplied(no, presence))
        return value, presence

    def _negation(self, predicate: Scalar) -> Polynomial:
        """1 where the predicate is false or NULL: a condition if one atom decides, else 1 minus the indicator."""
        atoms = self._core.atoms_of(predicate) or [self.first_atom]
        if len(atoms) == 1:
            negated = Compare("IS DISTINCT FROM", predicate, TRUE)
            return (Monomial(Fraction(1), (), ((atoms[0], negated),)),)
        return ONE + _scaled((self.indicator(predicate),), -1)

    def _refused(self, value: Scalar) -> Exception:
        return self._notes.refusal(
            "This expression over several tables",
            self._notes.place_of(value),
            "a sum over a join is kept as products of one-table sums, so the argument may only use "
            "+, -, *, division of a DOUBLE by a constant, and CASE with one-table conditions",
            "compute it from one table's columns, or keep the columns in the view and aggregate when you read it",
        )


def is_floating(kind: str) -> bool:
    """Types that DuckDB sums as DOUBLE."""
    return kind in FLOATS or kind == "UHUGEINT"


def both(one: Scalar, other: Scalar) -> Scalar:
    return Logic("AND", (one, other))


def _keeps_value(source: str, target: str, floating: bool) -> bool:
    """Whether a cast over several tables changes no value (to DOUBLE: rounds as all floating sums do)."""
    return is_lossless(source, target) or (floating and target == "DOUBLE")


def multiplied(left: Polynomial, right: Polynomial) -> Polynomial:
    """The product of two polynomials."""
    return _combined(tuple(one.times(other) for one in left for other in right))


def _scaled(polynomial: Polynomial, by: int) -> Polynomial:
    return tuple(Monomial(one.coefficient * by, one.values, one.guarding) for one in polynomial)


def _combined(polynomial: Polynomial) -> Polynomial:
    """Like terms added, zeros dropped, order kept."""
    sums: dict[tuple[tuple[Part, ...], frozenset[Part]], Monomial] = {}
    for one in polynomial:
        like = (one.values, one.conditions)
        former = sums.get(like, Monomial(Fraction(0), one.values, one.guarding))
        sums[like] = Monomial(former.coefficient + one.coefficient, one.values, former.guarding)
    return tuple(one for one in sums.values() if one.coefficient)

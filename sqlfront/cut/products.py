"""SUM arguments over several tables, multiplied out into products of one-table factors.

Every expression e becomes two polynomials: its value V, which counts as 0 where e is NULL, and its
presence N, which is 1 where e is not NULL and 0 elsewhere. They follow the expression:

    product    V = V1 * V2                    N = N1 * N2
    sum        V = V1 * N2 + N1 * V2          N = N1 * N2
    CASE p     V = [p] V1 + [not p] V2        N = [p] N1 + [not p] N2

so a row counts only where all that the expression uses is not NULL, as in SQL. A DOUBLE that is NaN or infinite counts
as 0, too: such rows are counted beside (see expressions/special_values.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlfront.binding.notes import Notes
from sqlfront.cut.expressions.polynomials import ONE, Monomial, Polynomial, combined, multiplied, scaled
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
from sqlfront.cut.expressions.special_values import (
    Signs,
    Specials,
    constant_signs,
    is_finite,
    leaf_signs,
    leaf_specials,
    times_finite,
)
from sqlfront.cut.expressions.value_types import FLOATS, is_exact_number, is_lossless
from sqlfront.cut.join_core import JoinCore
from sqlfront.planner.algebra.scalars import TRUE, Call, Compare, Constant, Logic, Scalar, can_fail, conjuncts

ARGUMENT = Constant("v", "DOUBLE")
"""What a scaler (v * c, v / c) is applied to."""
_NULL_TYPE = '"NULL"'
_NO_PRODUCT = (
    "a sum over a join is kept as products of one-table sums, so the argument may only use "
    "+, -, *, division of a DOUBLE by a constant, and CASE with one-table conditions"
)
_NO_SIGN = (
    "a sum over several tables times a DOUBLE that may be infinite has a sign that is no product of one-table signs"
)
_NEVER = Specials()
_LARGEST_EXACT = 9_007_199_254_740_992  # every integer up to 2^53 is a DOUBLE


@dataclass(frozen=True)
class Expanded:
    """An expression multiplied out. A DOUBLE counts as 0 in `value` where it is not finite; `specials` count such rows.
    `signs` are None of a sum over several tables, whose sign is no product."""

    value: Polynomial = ()
    presence: Polynomial = ()
    specials: Specials = _NEVER
    signs: Signs | None = None


class Expander:
    """Multiplies out expressions over the atoms of a join."""

    def __init__(self, con: Any, core: JoinCore, never_null: Callable[[Scalar], bool], notes: Notes) -> None:
        self._con, self._core, self._never_null, self._notes = con, core, never_null, notes
        self.first_atom = core.atoms[0].name

    def expand(self, value: Scalar, floating: bool) -> Expanded:
        """A numeric expression; `floating` when the whole argument is a DOUBLE.

        Raises NotSupportedError for what cannot be multiplied out.
        """
        atoms = self._core.atoms_of(value)
        if value.type == _NULL_TYPE:  # As CASE without a value in any branch is: it is never there, but may fail.
            if can_fail(value):
                raise self._refused(value)
            return Expanded()
        if not atoms:
            return self._constant(value, floating)
        if len(atoms) == 1:
            return self._floating_leaf(value, atoms[0]) if floating else Expanded(*self.leaf(value))
        if floating and value.type == "FLOAT":
            why = "FLOAT arithmetic rounds every row to 24 bits, which a product of sums cannot follow"
            place = self._notes.place_of(value)
            raise self._notes.refusal("FLOAT arithmetic across tables", place, why, "cast to DOUBLE")
        match value:
            case Call(form="-{0}" | "+ {0}", arguments=(inner,)):
                found = self.expand(inner, floating)
                return _negated(found) if value.form == NEGATE else found
            case Call(form="{0} + {1}" | "{0} - {1}" | "{0} * {1}"):
                return self._binary(value, floating)
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
        return self.leaf(value)[1] if len(atoms) == 1 else self.expand(value, False).presence

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

    def _floating_leaf(self, value: Scalar, atom: str) -> Expanded:
        """A DOUBLE of one table."""
        value_, presence = self.leaf(value)
        written = value.arguments[0] if isinstance(value, Call) and is_cast(value) else value
        may_be_special = not is_exact_number(written.type)
        signs = leaf_signs(atom, value, presence, may_be_special)
        if not may_be_special:
            return Expanded(value_, presence, _NEVER, signs)
        finite = Monomial(Fraction(1), ((atom, value),), ((atom, is_finite(value)),))
        return Expanded((finite,), presence, leaf_specials(atom, value), signs)

    def _binary(self, value: Call, floating: bool) -> Expanded:
        left, right = (self.expand(operand, floating) for operand in value.arguments)
        if value.form == MULTIPLY:
            return self._product(left, right, value)
        right = _negated(right) if value.form == SUBTRACT else right
        return Expanded(
            combined(multiplied(left.value, right.presence) + multiplied(left.presence, right.value)),
            multiplied(left.presence, right.presence),
            left.specials.times(right.presence).with_others(right.specials.times(left.presence)),
        )

    def _product(self, left: Expanded, right: Expanded, value: Call) -> Expanded:
        total, presence = multiplied(left.value, right.value), multiplied(left.presence, right.presence)
        if left.signs is not None and right.signs is not None:
            signs = left.signs.times(right.signs)
            specials = signs.specials(presence) if left.specials or right.specials else _NEVER
            return Expanded(total, presence, specials, signs)
        one, other = (left, right) if right.signs is not None else (right, left)
        if not one.specials and not other.specials:
            return Expanded(total, presence)
        if other.signs is None or other.specials:
            raise self._refused(value, _NO_SIGN)
        return Expanded(total, presence, times_finite(one.specials, other.presence, other.signs))

    def _divided(self, value: Call, floating: bool) -> Expanded:
        dividend, divisor = value.arguments
        number = self._evaluate(divisor)
        if not floating or not number:
            raise self._refused(value)
        scale = Monomial(Fraction(1), (("", call(DIVIDE, "DOUBLE", ARGUMENT, divisor)),))
        scaler = Expanded((scale,), ONE, _NEVER, constant_signs(Fraction(number)))
        return self._product(self.expand(dividend, floating), scaler, value)

    def _constant(self, value: Scalar, floating: bool) -> Expanded:
        number = self._evaluate(value)
        if number is None:
            return Expanded()
        signs = constant_signs(Fraction(number)) if floating else None
        if floating and not (float(number).is_integer() and abs(float(number)) <= _LARGEST_EXACT):
            factor = Constant(f"CAST({float(number)!r} AS DOUBLE)", "DOUBLE")
            scale = Monomial(Fraction(1), (("", call(MULTIPLY, "DOUBLE", ARGUMENT, factor)),))
            return Expanded((scale,), ONE, _NEVER, signs)
        return Expanded((Monomial(Fraction(number)),), ONE, _NEVER, signs)

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

    def _case(self, checks: list[tuple[Scalar, Scalar]], otherwise: Scalar, floating: bool) -> Expanded:
        found = self.expand(otherwise, floating)
        for condition, then in reversed(checks):
            chosen = self.expand(then, floating)
            found = _either((self.indicator(condition),), chosen, self._negation(condition), found)
        return found

    def _negation(self, predicate: Scalar) -> Polynomial:
        """1 where the predicate is false or NULL: a condition if one atom decides, else 1 minus the indicator."""
        atoms = self._core.atoms_of(predicate) or [self.first_atom]
        if len(atoms) == 1:
            negated = Compare("IS DISTINCT FROM", predicate, TRUE)
            return (Monomial(Fraction(1), (), ((atoms[0], negated),)),)
        return ONE + scaled((self.indicator(predicate),), -1)

    def _refused(self, value: Scalar, why: str = _NO_PRODUCT) -> Exception:
        return self._notes.refusal(
            "This expression over several tables",
            self._notes.place_of(value),
            why,
            "compute it from one table's columns, or keep the columns in the view and aggregate when you read it",
        )


def _negated(one: Expanded) -> Expanded:
    signs = None if one.signs is None else one.signs.negated()
    return replace(one, value=scaled(one.value, -1), specials=one.specials.negated(), signs=signs)


def _either(yes: Polynomial, one: Expanded, no: Polynomial, other: Expanded) -> Expanded:
    """The first where `yes` is 1, the other where `no` is: one of both is 1 in each row."""
    presence = one.presence
    if other.presence != presence:
        presence = combined(multiplied(yes, one.presence) + multiplied(no, other.presence))
    signs = None
    if one.signs is not None and other.signs is not None:
        signs = one.signs.over(yes).with_others(other.signs.over(no))
    return Expanded(
        combined(multiplied(yes, one.value) + multiplied(no, other.value)),
        presence,
        one.specials.times(yes).with_others(other.specials.times(no)),
        signs,
    )


def is_floating(kind: str) -> bool:
    """Types that DuckDB sums as DOUBLE."""
    return kind in FLOATS or kind == "UHUGEINT"


def both(one: Scalar, other: Scalar) -> Scalar:
    return Logic("AND", (one, other))


def _keeps_value(source: str, target: str, floating: bool) -> bool:
    """Whether a cast over several tables changes no value (to DOUBLE: rounds as all floating sums do)."""
    return is_lossless(source, target) or (floating and target == "DOUBLE")

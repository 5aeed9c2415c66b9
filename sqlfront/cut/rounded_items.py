"""ORDER BY items that are sums of floating numbers of several tables: how DuckDB computes them, and how far that may be
from the exact sum.

DuckDB rounds after each step, in the order in which the query has them. Rows are ordered by that value; how they are
found by bounds of it, which are made part by part, is told in sqlfront.storage.kernels.programs.rounding_bounds.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite
from typing import Any

from sqlfront.cut.composed_items import Obstacle
from sqlfront.cut.expressions.scalar_forms import MULTIPLY, SUBTRACT, evaluated, is_cast
from sqlfront.cut.expressions.value_types import FLOATS, INTEGER_BITS, is_lossless
from sqlfront.cut.join_core import JoinCore
from sqlfront.planner.algebra.scalars import (
    Call,
    Scalar,
    cast,
)
from sqlfront.planner.model.query import Rounding
from sqlfront.storage.kernels.layout import EXACT_LIMIT, EXACT_UNIT, MOST_PARTS

_WIDEST = 2**40
_SPARE = 16
"""Steps that bounds are rounded in themselves, generously."""


def read_rounded(value: Scalar, core: JoinCore, con: Any) -> tuple[list[tuple[Scalar, str]], Rounding] | None:
    """The parts of an item that is a sum of floating numbers, expressions of one table each with their types; None if
    it is of another type. Obstacle if it is no such sum."""
    if value.type not in FLOATS:
        return None
    reading = _Reading(core, con)
    reading.push(value, value.type, Fraction(1))
    return reading.parts, reading.rounding()


class _Reading:
    """The steps that compute a sum, as far as it has been read."""

    def __init__(self, core: JoinCore, con: Any) -> None:
        self._core, self._con = core, con
        self.parts: list[tuple[Scalar, str]] = []
        self._steps: list[tuple[str, float, str]] = []
        self._weights: list[Fraction] = []
        self._constants: list[Fraction] = []

    def push(self, value: Scalar, type_: str, weight: Fraction) -> None:
        """Add the steps that compute an expression in a type; `weight` is what it is multiplied by afterwards."""
        atoms, kind = self._core.atoms_of(value), value.type
        if not _WIDEST >= abs(weight) >= Fraction(1, _WIDEST):
            raise Obstacle("its coefficients are too far apart")
        if not atoms:
            number = self._constant(value, type_)
            self._constants.append(Fraction(number) * weight)
            self._steps.append(("constant", number, type_))
        elif len(atoms) == 1:
            self._steps.append(("part", len(self.parts), type_))
            self.parts.append((cast(value, type_), type_))
            self._weights.append(weight)
        elif kind != type_ and not is_lossless(kind, type_):
            shown = self._core.spelled(value)
            raise Obstacle(f"{shown} in it is {kind} over several tables: cast its numbers to {type_}")
        elif isinstance(value, Call) and is_cast(value) and is_lossless(value.arguments[0].type, kind):
            self.push(value.arguments[0], "DOUBLE" if kind in INTEGER_BITS else kind, weight)
        else:
            self._push_call(value, "DOUBLE" if kind in INTEGER_BITS else kind, weight)

    def rounding(self) -> Rounding:
        """How the sum is computed, of all that has been read."""
        numbers = len(self.parts) + len(self._constants)
        if numbers > MOST_PARTS:
            raise Obstacle(f"it is a sum of more than {MOST_PARTS} numbers")
        single = any(type_ == "FLOAT" for _, _, type_ in self._steps)
        error = Fraction(2 * len(self._steps) + _SPARE, 2 ** FLOATS["FLOAT" if single else "DOUBLE"])
        factors = any(what in ("*", "/") for what, _, _ in self._steps)
        few = not single and not factors and all(map(_has_few_digits, self._constants))
        constant, doubt = sum(self._constants), Fraction(0)
        if not few:
            doubt = error * sum(map(abs, self._constants))
        bounds = float(constant - doubt), float(constant + doubt)
        weights = tuple(map(float, self._weights))
        return Rounding(tuple(self._steps), weights, bounds, float(error), numbers if few else 0)

    def _push_call(self, value: Scalar, type_: str, weight: Fraction) -> None:
        match value:
            case Call(form="{0} + {1}" | "{0} - {1}", arguments=(left, right)):
                self.push(left, type_, weight)
                self.push(right, type_, -weight if value.form == SUBTRACT else weight)
                self._steps.append(("-" if value.form == SUBTRACT else "+", 0, type_))
            case Call(form="-{0}", arguments=(inner,)):
                self.push(inner, type_, -weight)
                self._steps.append(("negate", 0, type_))
            case Call(form="{0} * {1}" | "{0} / {1}", arguments=(left, right)):
                self._push_scaled(value, left, right, type_, weight)
            case _:
                raise self._no_sum(value)

    def _push_scaled(self, value: Call, left: Scalar, right: Scalar, type_: str, weight: Fraction) -> None:
        varying = [part for part in (left, right) if self._core.atoms_of(part)]
        if len(varying) != 1:
            raise self._no_sum(value)
        factor = right if varying[0] is left else left
        number, name = self._constant(factor, type_), "*" if value.form == MULTIPLY else "/"
        if number == 0 or (name == "/" and factor is left):
            raise self._no_sum(value)
        scaled = weight * Fraction(number) if name == "*" else weight / Fraction(number)
        self.push(varying[0], type_, scaled)
        self._steps += [("constant", number, type_), (name, 0, type_)]

    def _no_sum(self, value: Scalar) -> Obstacle:
        return Obstacle(f"{self._core.spelled(value)} is no sum of one table's columns each")

    def _constant(self, value: Scalar, type_: str) -> float:
        number: Any = evaluated(self._con, cast(value, type_))
        if number is None or not isfinite(number):
            raise Obstacle(f"{self._core.spelled(value)} is no finite number")
        return float(number)


def _has_few_digits(number: Fraction) -> bool:
    """Whether a number is one of those of which many are added without rounding."""
    return abs(number) < 2**EXACT_LIMIT and (number * 2**EXACT_UNIT).denominator == 1

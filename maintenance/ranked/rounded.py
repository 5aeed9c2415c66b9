"""Sums of floating numbers as DuckDB rounds them, and what bounds of them tell about rows that come later."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from sqlfront.planner.model.query import Term
from sqlfront.storage.codecs.fixed import float_codes, floats_of
from sqlfront.storage.kernels import layout as at

_TYPES = {"FLOAT": np.float32, "DOUBLE": np.float64}
_OPERATIONS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
_NO_BOUND = 1 << (at.SHARE_NONE - 1)


def rounded_sums(term: Term, words: Callable[[str], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The values of a rounded sum for rows whose variables have these words, and which of them are NULL."""
    assert term.rounding is not None
    codes = [words(variable) for _, variable in term.parts]
    stack: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for what, operand, type_ in term.rounding.steps:
            kind = _TYPES[type_]
            if what == "part":
                stack.append(floats_of(codes[int(operand)]).astype(kind))
            elif what == "constant":
                stack.append(np.full(len(codes[0]), operand, kind))
            elif what == "negate":
                stack.append(-stack.pop().astype(kind))
            else:
                right, left = stack.pop().astype(kind), stack.pop().astype(kind)
                stack.append(_OPERATIONS[what](left, right))
    missing = np.zeros(len(codes[0]), bool)
    for word in codes:
        missing |= word == at.NULL_CODE
    return stack.pop().astype(np.float64), missing


def bound_code(term: Term, total: int) -> tuple[int, bool]:
    """The code of the first DOUBLE that a rounded sum may be in a row whose bounds add up to `total`, and whether the
    sum of all rows whose bounds add up to more comes behind it.

    A sum is not before its bound, so it is the bound only where both are the same DOUBLE.
    """
    assert term.rounding is not None
    sign = -1 if term.descending else 1
    if sign * total <= -_NO_BOUND:
        return _code(math.nan if term.descending else -math.inf), False
    exact = Fraction(total, 1 << at.SHARE_UNIT) + Fraction(term.rounding.constant[1 if term.descending else 0])
    found = float(exact)
    if sign * Fraction(found) < sign * exact:
        found = math.nextafter(found, sign * math.inf)
    return _code(found), Fraction(found) == exact


def _code(number: float) -> int:
    return int(float_codes(np.array([number]))[0])

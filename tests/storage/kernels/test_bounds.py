"""Bounds of rounded sums: never on the wrong side, near, and exact where nothing is rounded."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sqlfront.storage.codecs.fixed import float_codes
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.programs.rounding_bounds import add_bound

ERROR = 40 * 2.0**-53
SUMMANDS = st.one_of(
    st.floats(),
    st.sampled_from([0.1, 0.2, 0.3, 0.7, -0.7, 1e300, -1e300, 1e-300, 5e-324, 2.0**60, -(2.0**60), 1e16, 2.0**20]),
    st.integers(-9, 9).map(float),
    st.floats(-1e6, 1e6),
)


def shares(numbers: list[float], *, upper: bool, weight: float = 1.0, exact: bool = True) -> int:
    """What the bounds of numbers add up to, in units."""
    words = np.zeros(3, np.int64)
    kind = at.RANK_ADD_UPPER if upper else at.RANK_ADD_LOWER
    kind += at.RANK_PARTS * len(numbers) * exact
    entry = np.array([kind, 0, 0, bits(weight), bits(ERROR)], np.int64)
    for code in float_codes(np.array(numbers)).tolist():
        add_bound(entry.ctypes.data, code, words.ctypes.data)
    assert words[0] == 0
    return (int(words[1]) << 64) + (int(words[2]) & (2**64 - 1))


def bits(number: float) -> int:
    found: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return found


def is_before(total: int, value: float) -> bool:
    """Whether a lower bound is not above a value; NaN is above all."""
    if total <= -(2 ** (at.SHARE_NONE - 1)) or math.isnan(value) or value == math.inf:
        return True
    return value != -math.inf and Fraction(total, 2**at.SHARE_UNIT) <= Fraction(value)


def is_behind(total: int, value: float) -> bool:
    if total >= 2 ** (at.SHARE_NONE - 1) or value == -math.inf:
        return True
    return math.isfinite(value) and Fraction(total, 2**at.SHARE_UNIT) >= Fraction(value)


@given(st.lists(SUMMANDS, min_size=2, max_size=6), st.booleans())
def test_a_rounded_sum_is_between_its_bounds(numbers: list[float], exact: bool) -> None:
    value = 0.0
    for number in numbers:
        value += number
    assert is_before(shares(numbers, upper=False, exact=exact), value)
    assert is_behind(shares(numbers, upper=True, exact=exact), value)


@given(st.lists(SUMMANDS, min_size=2, max_size=4), st.sampled_from([0.1, -3.0, 7e-9, -1e9]))
def test_a_multiple_is_between_its_bounds(numbers: list[float], weight: float) -> None:
    value = 0.0
    for number in numbers:
        value += number
    assert is_before(shares(numbers, upper=False, weight=weight, exact=False), value * weight)
    assert is_behind(shares(numbers, upper=True, weight=weight, exact=False), value * weight)


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=6))
def test_bounds_are_near(numbers: list[float]) -> None:
    lower, upper = shares(numbers, upper=False), shares(numbers, upper=True)
    assert 0 <= Fraction(upper - lower, 2**at.SHARE_UNIT) <= 1e-12 + 4 * ERROR * len(numbers) * (1e9 + 2**20 * 6)


@given(st.lists(st.integers(-(2**32) + 1, 2**32 - 1), min_size=2, max_size=at.MOST_PARTS))
def test_numbers_of_few_digits_are_their_own_bounds(wholes: list[int]) -> None:
    numbers = [whole / 2**at.EXACT_UNIT for whole in wholes]
    exact = sum(map(Fraction, numbers)) * 2**at.SHARE_UNIT
    assert shares(numbers, upper=False) == exact == shares(numbers, upper=True)

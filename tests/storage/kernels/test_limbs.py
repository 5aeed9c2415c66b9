"""Multi-limb arithmetic against Python's integers."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from sqlfront.storage.codecs.sums import from_integers, to_integers
from sqlfront.storage.kernels.numbers import limbs as kernels

EDGES = [0, 1, -1, 2**31, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, -(2**64), 2**127 - 1, -(2**127), 2**191]
numbers = st.one_of(st.sampled_from(EDGES), st.integers(-(2**191), 2**191 - 1), st.integers(-(2**64), 2**64))
widths = st.integers(1, 5)


def fits(number: int, limbs: int) -> bool:
    return -(2 ** (64 * limbs - 1)) <= number < 2 ** (64 * limbs - 1)


def wrapped(number: int, limbs: int) -> int:
    number %= 2 ** (64 * limbs)
    return number - 2 ** (64 * limbs) if number >= 2 ** (64 * limbs - 1) else number


def words(number: int, limbs: int, before: int = 0) -> np.ndarray:
    """The number's limbs after `before` words that must not be touched."""
    return np.concatenate([np.full(before, 77, np.int64), from_integers([number], limbs)[0]])


def number_of(data: np.ndarray, limbs: int, before: int = 0) -> int:
    assert (data[:before] == 77).all()
    return to_integers(data[before : before + limbs].reshape(1, -1))[0]


@given(numbers, numbers, widths, st.integers(0, 2))
@example(-1, 1, 2, 0)
@example(2**127 - 1, 1, 2, 0)
@example(-(2**127), -1, 2, 0)
@example(-1, -1, 2, 0)
def test_add(a, b, limbs, before):
    a, b = wrapped(a, limbs), wrapped(b, limbs)
    data, other = words(a, limbs, before), words(b, limbs)
    overflow = kernels.add_value(data.ctypes.data, before, other.ctypes.data, 0, limbs)
    assert number_of(data, limbs, before) == wrapped(a + b, limbs)
    assert overflow == (not fits(a + b, limbs))


@given(numbers, numbers, widths, widths, widths)
@example(-(2**63), -(2**63), 1, 1, 2)
@example(-(2**63), -(2**63), 1, 1, 1)
@example(-(2**63), 1, 1, 1, 1)
@example(2**32, 2**31, 1, 1, 1)
@example(-(2**32), 2**31, 1, 1, 1)
@example(-(2**127), -(2**127), 2, 2, 4)
@example(-(2**127), -(2**127), 2, 2, 3)
@example(-1, 0, 3, 3, 1)
def test_multiply(a, b, a_limbs, b_limbs, out_limbs):
    a, b = wrapped(a, a_limbs), wrapped(b, b_limbs)
    left, right = words(a, a_limbs), words(b, b_limbs)
    out, temporary = words(0, out_limbs + 1, 1), np.zeros(64, np.int64)
    out[-1] = 99
    overflow = kernels.multiply(
        out.ctypes.data, 1, out_limbs, left.ctypes.data, 0, a_limbs, right.ctypes.data, 0, b_limbs,
        temporary.ctypes.data,
    )  # fmt: skip
    assert number_of(out, out_limbs, 1) == wrapped(a * b, out_limbs)
    assert out[-1] == 99
    assert overflow == (not fits(a * b, out_limbs))
    assert number_of(left, a_limbs) == a


@given(numbers, numbers, widths)
def test_multiply_in_place(a, b, limbs):
    a, b = wrapped(a, limbs), wrapped(b, limbs)
    data, other, temporary = words(a, limbs), words(b, limbs), np.zeros(64, np.int64)
    at = data.ctypes.data
    overflow = kernels.multiply(at, 0, limbs, at, 0, limbs, other.ctypes.data, 0, limbs, temporary.ctypes.data)
    assert (number_of(data, limbs), overflow) == (wrapped(a * b, limbs), not fits(a * b, limbs))


@given(numbers, widths, widths)
def test_copy_extends_the_sign_or_reports_a_cut(a, limbs, out_limbs):
    a = wrapped(a, limbs)
    source, out = words(a, limbs), words(0, out_limbs)
    overflow = kernels.copy_value(out.ctypes.data, 0, out_limbs, source.ctypes.data, 0, limbs)
    assert (number_of(out, out_limbs), overflow) == (wrapped(a, out_limbs), not fits(a, out_limbs))


@given(numbers, widths)
def test_sign_negation_and_magnitude(a, limbs):
    a = wrapped(a, limbs)
    data = words(a, limbs, 1)
    assert kernels.sign_of(data.ctypes.data, 1, limbs) == (a > 0) - (a < 0)
    out = words(0, limbs)
    assert kernels.magnitude(data.ctypes.data, 1, limbs, out.ctypes.data, 0) == (a < 0)
    assert number_of(out, limbs) == wrapped(abs(a), limbs)
    kernels.negate(data.ctypes.data, 1, limbs)
    assert number_of(data, limbs, 1) == wrapped(-a, limbs)


@given(numbers, st.integers(0, 200))
@example(-1, 64)
@example(1, 63)
@example(2**64 - 1, 1)
def test_shift_left(a, bits):
    a = wrapped(a, 3)
    data = words(a, 8, 1)
    kernels.shift_left(data.ctypes.data, 1, 8, bits)
    assert number_of(data, 8, 1) == a << bits

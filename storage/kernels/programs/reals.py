"""Arithmetic of DOUBLEs in compiled expressions (expression.py). IEEE 754 has one result for each operation.

A register holds the code of a DOUBLE, in which both zeros are one. So division by zero is refused, and so is a result
that is not finite: DuckDB's settings decide it.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.memory import bits_of, double_of, load, store

# NULL if a or b is, refused unless a, b and out are finite and no divisor is zero. TO_REAL is the number a divided by
# x, refused where |a| is above 2^53.
REAL_ADD, REAL_SUBTRACT, REAL_MULTIPLY, REAL_DIVIDE, TO_REAL = range(27, 32)

_LARGEST_EXACT = 2**53


@kernel("boolean(int64)")
def is_finite(code):
    """Whether a DOUBLE's code is that of a number."""
    return ((code ^ (code >> 63)) >> 52) & 0x7FF != 0x7FF


@kernel("int64(int64)")
def bits_of_code(code):
    """The bits of the DOUBLE that has a code."""
    return code ^ ((code >> 63) & 0x7FFFFFFFFFFFFFFF)


@kernel("int64(int64)")
def code_of_bits(bits):
    """The code of the DOUBLE that has these bits, one for both zeros."""
    return 0 if bits == NULL_CODE else bits_of_code(bits)


@kernel("int64(int64,int64,int64)")
def to_real(at, registers, count):
    """TO_REAL: DuckDB too divides a number that a DOUBLE holds exactly by a power of ten, which is rounded once."""
    out = registers + load(at, 1) * count * 8
    source = registers + load(at, 2) * count * 8
    refused = 0
    for i in range(count):
        a = load(source, i)
        value = NULL_CODE
        if a != NULL_CODE:
            refused |= 1 if a > _LARGEST_EXACT or a < -_LARGEST_EXACT else 0
            value = code_of_bits(bits_of(float(a) / float(load(at, 4))))
        store(out, i, value)
    return refused


@kernel("int64(int64,int64,int64)")
def calculate_real(at, registers, count):
    """REAL_ADD, REAL_SUBTRACT, REAL_MULTIPLY and REAL_DIVIDE."""
    kind = load(at, 0)
    out = registers + load(at, 1) * count * 8
    left = registers + load(at, 2) * count * 8
    right = registers + load(at, 3) * count * 8
    refused = 0
    for i in range(count):
        a = load(left, i)
        b = load(right, i)
        value = NULL_CODE
        if a != NULL_CODE and b != NULL_CODE:
            refused |= 1 if kind == REAL_DIVIDE and b == 0 else 0
            first = double_of(bits_of_code(a))
            second = double_of(bits_of_code(1 if kind == REAL_DIVIDE and b == 0 else b))
            if kind == REAL_ADD:
                value = code_of_bits(bits_of(first + second))
            elif kind == REAL_SUBTRACT:
                value = code_of_bits(bits_of(first - second))
            elif kind == REAL_MULTIPLY:
                value = code_of_bits(bits_of(first * second))
            else:
                value = code_of_bits(bits_of(first / second))
            refused |= 0 if is_finite(a) and is_finite(b) and is_finite(value) else 1
        store(out, i, value)
    return refused

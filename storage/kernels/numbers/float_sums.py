"""Kernels of exact sums: numbers of several limbs from doubles, to doubles, multiplied, and scaled together.

Arrays are given by their addresses. A number is a row of an (n, width) int64 array: two's complement, least significant
limb first.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.memory import bits_of, high_product, less_unsigned, load, shift_right, store
from sqlfront.storage.kernels.numbers.limbs import multiply

_FRACTION = (1 << 52) - 1
_IMPLICIT = 1 << 52
_SIGN = -(2**63)
_INFINITY = 0x7FF << 52


@kernel("int64(int64)")
def bit_length(word):
    """Bits of an unsigned word, without leading zeros."""
    bits = 0
    # Halving: where the upper half has a bit, the lower one counts whole.
    for step in (32, 16, 8, 4, 2, 1):
        high = shift_right(word, step)
        if high != 0:
            bits += step
            word = high
    return bits + (word != 0)


@kernel("int64(int64)")
def exponent_of(bits):
    """The power of two of a finite double's last place."""
    e = (bits >> 52) & 0x7FF
    # A subnormal has the least normal exponent, and no implicit bit.
    return (e if e > 0 else 1) - 1075


@kernel("int64(int64)")
def significand_of(bits):
    return (bits & _FRACTION) | (_IMPLICIT if bits & _INFINITY else 0)


@kernel("boolean(int64,int64,int64)")
def float_bounds(bits, rows, bounds):
    """Lower bounds[0] to the lowest set bit's power of two, raise bounds[1] above the highest; False if not finite."""
    for row in range(rows):
        b = load(bits, row)
        if b << 1 == 0:  # 0 or -0.
            continue
        if b & _INFINITY == _INFINITY:
            return False
        significand, exponent = significand_of(b), exponent_of(b)
        lowest = bit_length(significand & -significand) - 1
        store(bounds, 0, min(load(bounds, 0), exponent + lowest))
        store(bounds, 1, max(load(bounds, 1), exponent + bit_length(significand)))
    return True


@kernel("void(int64,int64,int64,int64,int64)")
def float_limbs(bits, rows, shift, out, width):
    """value * 2^shift into zeroed limbs; `float_bounds` has shown that it fits exactly."""
    for row in range(rows):
        b, number = load(bits, row), out + 8 * width * row
        if b << 1 == 0:
            continue
        word, position = significand_of(b), exponent_of(b) + shift
        if position < 0:  # Only zeros are shifted out: the bounds have shown it.
            word >>= -position
            position = 0
        limb, offset = position >> 6, position & 63
        store(number, limb, word << offset)
        if offset > 0 and limb + 1 < width:
            store(number, limb + 1, shift_right(word, 64 - offset))
        if b < 0:  # Two's complement: all limbs inverted, plus 1.
            carry = 1
            for i in range(limb, width):
                negated = ~load(number, i) + carry
                store(number, i, negated)
                carry = 1 if carry == 1 and negated == 0 else 0


@kernel("int64(int64,int64,int64)")
def window(limbs, width, position):
    """64 bits of a number from bit `position` up; bits outside are 0."""
    limb, offset = position >> 6, position & 63
    low = load(limbs, limb) if 0 <= limb < width else 0
    high = load(limbs, limb + 1) if 0 <= limb + 1 < width else 0
    return low if offset == 0 else shift_right(low, offset) | (high << (64 - offset))


@kernel("int64(int64,int64,int64)")
def nearest_double(magnitude, width, shift):
    """The bits of the double nearest to magnitude * 2^-shift, ties to even, subnormals and overflow included."""
    top = width - 1
    while top >= 0 and load(magnitude, top) == 0:
        top -= 1
    if top < 0:
        return 0
    highest = 64 * top + bit_length(load(magnitude, top)) - 1
    # The place of the last bit that is kept: 53 bits, or down to that of subnormals.
    last = max(highest - 52, shift - 1074)
    significand = window(magnitude, width, last) if last <= highest else 0
    if last > 0 and (window(magnitude, width, last - 1) & 1) == 1:
        # The first bit that is dropped is set. Exactly a half goes to the even neighbour, more goes up.
        odd = significand & 1
        if odd == 0:
            limb, offset = (last - 1) >> 6, (last - 1) & 63
            odd = 1 if load(magnitude, limb) & ((1 << offset) - 1) != 0 else 0
            for i in range(limb):
                odd |= 1 if load(magnitude, i) != 0 else 0
        significand += odd
    biased = last - shift + 1075
    if biased == 1 and significand < _IMPLICIT:  # Subnormal.
        return significand
    if significand == _IMPLICIT << 1:  # Rounded up to one bit more.
        significand >>= 1
        biased += 1
    return _INFINITY if biased >= 0x7FF else (biased << 52) | (significand & _FRACTION)


@kernel("void(int64,int64,int64,int64,int64,int64)")
def nearest_doubles(limbs, width, shift, magnitude, out, rows):
    """The bits of the doubles nearest to each number * 2^-shift. `magnitude` is room for one number."""
    for row in range(rows):
        number = limbs + 8 * width * row
        negative = load(number, width - 1) < 0
        carry = 1
        for i in range(width):
            word = load(number, i)
            if negative:
                word = ~word + carry
                carry = 1 if carry == 1 and word == 0 else 0
            store(magnitude, i, word)
        bits = nearest_double(magnitude, width, shift)
        store(out, row, bits | _SIGN if negative else bits)


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def multiply_rows(left, left_width, right, right_width, out, rows, temporary):
    """The products of the numbers row by row, of `left_width` + `right_width` limbs. `temporary` has room for two."""
    width = left_width + right_width
    for row in range(rows):
        number, other = left + 8 * left_width * row, right + 8 * right_width * row
        multiply(out + 8 * width * row, 0, width, number, 0, left_width, other, 0, right_width, temporary)


@kernel("void(int64,int64,int64,boolean,int64,int64,int64)")
def accumulate(limbs, width, factor, negative, out, out_width, rows):
    """Add each number times `factor` (an unsigned word; times -1 if `negative`) to `out`, modulo its width."""
    for row in range(rows):
        number, total_at = limbs + 8 * width * row, out + 8 * out_width * row
        sign = load(number, width - 1) >> 63
        # Taking away adds the complement and 1, with which the carry of the sum, `borrow`, begins.
        carry, borrow = 0, 1 if negative else 0
        for i in range(out_width):
            word = load(number, i) if i < width else sign
            low = word * factor + carry
            carry = high_product(word, factor) + less_unsigned(low, carry)
            if negative:
                low = ~low
            before = load(total_at, i)
            total = low + borrow
            borrow = less_unsigned(total, borrow)
            total += before
            borrow += less_unsigned(total, before)
            store(total_at, i, total)


@kernel("int64(int64,int64,int64)")
def by_extended(bits, number, divisor):
    """The double that number / divisor becomes if it is rounded to the 64 bits of x87's long double before; `bits` is
    the one that it becomes at once. |number| is at most 2^53, the divisor 2^52.

    They differ only where the first rounding leads to the middle between two doubles: then the even one is taken.
    """
    significand, shift = significand_of(bits), -exponent_of(bits)
    if number == 0 or significand & 1 == 0 or shift < 0:
        return bits
    # What is left, exact modulo 2^64: at most half a divisor.
    left = (abs(number) << shift if shift < 64 else 0) - significand * divisor
    if abs(2 * abs(left) - divisor) > divisor >> 11:
        return bits
    return bits + (1 if left > 0 else -1)


@kernel("int64(int64,int64,int64,int64,boolean,int64)")
def quotients(numbers, counts, factor, rows, extended, out):
    """numbers[i] / (counts[i] * factor) as doubles, any of a count 0; with `extended` by way of long doubles. Returns
    1, with nothing to be used, if a number or a divisor has too many bits for this.

    A quotient by less than 2^11 that is no middle between two doubles is too far from one to be rounded to it.
    """
    most = _IMPLICIT // factor
    for i in range(rows):
        number, count = load(numbers, i), max(load(counts, i), 1)
        if number > 2 * _IMPLICIT or number < -2 * _IMPLICIT or count > most:
            return 1
        divisor = count * factor
        bits = bits_of(float(number) / float(divisor))
        store(out, i, by_extended(bits, number, divisor) if extended and divisor >= 2048 else bits)
    return 0

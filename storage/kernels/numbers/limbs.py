"""Arithmetic on values of several limbs: exact sums and products that tell when they do not fit."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.memory import high_product, less_unsigned, load, shift_right, store


@kernel("int64(int64,int64,int64)")
def sign_of(base, offset, limbs):
    """-1, 0 or 1."""
    top = load(base, offset + limbs - 1)
    if top < 0:
        return -1
    for i in range(limbs):
        if load(base, offset + i) != 0:
            return 1
    return 0


@kernel("int64(int64,int64,int64,int64,int64)")
def add_value(base, offset, other, other_offset, limbs):
    """Add in place; 1 if the sum does not fit (it has wrapped), else 0."""
    carry = 0
    before = load(base, offset + limbs - 1)
    addend = load(other, other_offset + limbs - 1)
    for i in range(limbs):
        a = load(base, offset + i)
        b = load(other, other_offset + i)
        total = a + b + carry
        if carry == 1:
            carry = 1 - less_unsigned(a, total)
        else:
            carry = less_unsigned(total, a)
        store(base, offset + i, total)
    after = load(base, offset + limbs - 1)
    return 1 if (before < 0) == (addend < 0) and (after < 0) != (before < 0) else 0


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def add_wide(base, offset, limbs, other, other_offset, other_limbs, negative):
    """Add (or with `negative` take) a value of at most as many limbs, modulo the width."""
    filler = -1 if load(other, other_offset + other_limbs - 1) < 0 else 0
    carry = 1 if negative == 1 else 0
    for i in range(limbs):
        a = load(base, offset + i)
        b = load(other, other_offset + i) if i < other_limbs else filler
        if negative == 1:
            b = ~b
        total = carry + a + b
        carry = 1 - less_unsigned(a, total) if carry == 1 else less_unsigned(total, a)
        store(base, offset + i, total)


@kernel("void(int64,int64,int64)")
def negate(base, offset, limbs):
    """Two's complement negation in place."""
    carry = 1
    for i in range(limbs):
        word = ~load(base, offset + i) + carry
        carry = 1 if carry == 1 and word == 0 else 0
        store(base, offset + i, word)


@kernel("int64(int64,int64,int64,int64,int64)")
def magnitude(base, offset, limbs, out, out_offset):
    """Copy |value| to `out`; 1 if the value was negative."""
    for i in range(limbs):
        store(out, out_offset + i, load(base, offset + i))
    if load(base, offset + limbs - 1) < 0:
        negate(out, out_offset, limbs)
        return 1
    return 0


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def multiply(out, out_offset, out_limbs, a, a_offset, a_limbs, b, b_offset, b_limbs, temporary):
    """out = a * b, schoolbook; 1 if the product does not fit `out_limbs` (it has wrapped), else 0."""
    negative = magnitude(a, a_offset, a_limbs, temporary, 0) ^ magnitude(b, b_offset, b_limbs, temporary, a_limbs)
    product = a_limbs + b_limbs
    total = a_limbs + b_limbs
    for i in range(total + 1):
        store(temporary, product + i, 0)
    for i in range(a_limbs):
        carry = 0
        x = load(temporary, i)
        for j in range(b_limbs):
            y = load(temporary, a_limbs + j)
            # high:low + carry + present is at most 2^128 - 1, so `high` never wraps.
            low = x * y
            high = high_product(x, y)
            place = product + i + j
            low += carry
            high += less_unsigned(low, carry)
            present = load(temporary, place)
            low += present
            high += less_unsigned(low, present)
            store(temporary, place, low)
            carry = high
        store(temporary, product + i + b_limbs, carry)
    if negative == 1:
        negate(temporary, product, total + 1)
    filler = -1 if load(temporary, product + total) < 0 else 0
    for i in range(out_limbs):
        store(out, out_offset + i, load(temporary, product + i) if i <= total else filler)
    # It fits if all limbs that are cut off repeat the sign of the last one that is kept.
    expected = -1 if load(out, out_offset + out_limbs - 1) < 0 else 0
    overflow = 1 if expected != filler else 0
    for i in range(out_limbs, total + 1):
        if load(temporary, product + i) != expected:
            overflow = 1
    return overflow


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def copy_value(out, out_offset, out_limbs, base, offset, limbs):
    """Copy a value, sign-extended or cut; 1 if it does not fit."""
    filler = -1 if load(base, offset + limbs - 1) < 0 else 0
    for i in range(out_limbs):
        store(out, out_offset + i, load(base, offset + i) if i < limbs else filler)
    expected = -1 if load(out, out_offset + out_limbs - 1) < 0 else 0
    for i in range(out_limbs, limbs):
        if load(base, offset + i) != expected:
            return 1
    return 1 if expected != filler else 0


@kernel("void(int64,int64,int64,int64)")
def shift_left(base, offset, limbs, bits):
    """Multiply by 2**bits in place; the caller has made room, so nothing is lost at the top."""
    words = bits >> 6
    rest = bits & 63
    for i in range(limbs - 1, -1, -1):
        word = load(base, offset + i - words) << rest if i >= words else 0
        if rest > 0 and i > words:
            word |= shift_right(load(base, offset + i - words - 1), 64 - rest)
        store(base, offset + i, word)

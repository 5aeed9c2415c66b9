"""Rounded sums in ranked trees: for each number a bound of its share, in whole units, so that bounds add up exactly.

Rounding may turn two sums around when one more number is added, so rows cannot be compared part by part by what their
numbers are rounded to. But |rounded - exact| <= error * (|x| + |y| + ...) for sums of floating numbers (Higham 2002,
section 4.2), so that the sum of x - error * |x| is a lower bound that is made part by part. Rows come in the order of
these bounds, and are put into that of their rounded sums by whoever reads them (see ranked/window.py). Descending
orders take upper bounds.

Numbers with few digits are added without rounding. Their share is the number itself, and numbers with more digits
beside them pay for the errors of both.
"""

from __future__ import annotations

import math

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    EXACT_LIMIT,
    EXACT_UNIT,
    RANK_ADD_LOWER,
    RANK_KIND,
    RANK_PARTS,
    SHARE_CAP,
    SHARE_LIMIT,
    SHARE_NONE,
    SHARE_UNIT,
)
from sqlfront.storage.kernels.memory import double_of, less_unsigned, load, store

_LIMIT = 2.0**SHARE_LIMIT
_FEW, _FINE = 2.0**EXACT_LIMIT, 2.0**EXACT_UNIT
_UNITS = 2.0**SHARE_UNIT
_ABOVE = 64 - SHARE_UNIT
_CAP, _NONE = 1 << (SHARE_CAP - 64), -(1 << (SHARE_NONE - 64))
_MAGNITUDE = 0x7FFFFFFFFFFFFFFF


@kernel("void(int64,int64,int64,int64)")
def add_wide(out, target, high, low):
    """Add a number of two words to that at a place."""
    total = load(out, target + 1) + low
    store(out, target, load(out, target) + high + less_unsigned(total, low))
    store(out, target + 1, total)


@kernel("void(int64,int64,int64)")
def add_bound(entry, code, out):
    """Add a bound of the share of a floating number, given by its code, times the entry's coefficient; the operand is
    the relative error. NaN is greater than all numbers, whatever it is multiplied by."""
    kind = load(entry, 0)
    is_lower = kind & RANK_KIND == RANK_ADD_LOWER
    parts = kind // RANK_PARTS
    error = double_of(load(entry, 4))
    value = double_of(code ^ ((code >> 63) & _MAGNITUDE)) * double_of(load(entry, 3))
    is_number = value == value
    if not is_lower:
        value = -value
    few = parts > 0 and abs(value) < _FEW and math.floor(value * _FINE) == value * _FINE
    if not few and abs(value) < 2 * _LIMIT:
        value -= error * (abs(value) + parts * _FEW)
    low = 0
    if (is_number and value < -_LIMIT) or (not is_number and not is_lower):
        high = _NONE
    elif not is_number or value > _LIMIT:
        high = _CAP
    else:
        whole = math.floor(value)
        rest = int((value - whole) * _UNITS)
        low = whole << SHARE_UNIT
        high = whole >> _ABOVE
        low += rest
        high += less_unsigned(low, rest)
        if not few:
            # Two units for what has been rounded on the way here.
            high -= less_unsigned(low, 2)
            low -= 2
    if not is_lower:
        high = -high - (1 if low != 0 else 0)
        low = -low
    add_wide(out, load(entry, 1) + 1, high, low)

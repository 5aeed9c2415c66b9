"""Exact sums: what rows contribute, and what a sum is worth in DuckDB's result types.

A sum is kept as an integer of several 64-bit limbs (two's complement, least significant first): of the
values themselves, of scaled decimals, or of doubles times 2^shift, which loses nothing, so that deletes
leave no drift. Only decoding rounds, once, to the nearest double.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from sqlfront.storage.codecs.codec import TWO_WORDS, Codec, array_of, fixed_values, nulls_of
from sqlfront.storage.codecs.dictionary import Dictionaries
from sqlfront.storage.codecs.encoding import codec_for
from sqlfront.storage.codecs.types import parse_type
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.numbers import float_sums as kernels

_TWO_64 = np.longdouble(2) ** 64
_MOST_PLACES = 15
"""Decimal places whose power of ten is less than 2^52."""
_EXTENDED = np.finfo(np.longdouble).nmant == 63
"""Whether a long double has the 64 bits of x87. Others are doubles, or so wide that only the last rounding matters."""


class FactorRange(Exception):
    """A factor does not fit: `limbs` and `shift` are the least that hold all rows of the column seen."""

    def __init__(self, limbs: int, shift: int) -> None:
        self.limbs, self.shift = limbs, shift
        super().__init__(f"a factor needs {limbs} limbs at shift {shift}")


def encode_factor(column: pa.Array | pa.ChunkedArray, type: str, limbs: int, shift: int = 0) -> np.ndarray:
    """The values of a numeric or BOOLEAN column as an (n, limbs) int64 array; NULL is 0.

    Integers and booleans as they are, decimals as scaled integers (`shift` does not concern them), FLOAT and
    DOUBLE times 2^shift. An ARRAY stands for the exact product of its elements. FactorRange if that is no integer of
    so many limbs; DataError for NaN and infinities.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if type.endswith("]"):
        parts = [_product_factor(chunk, type, limbs, shift) for chunk in chunks if len(chunk)]
    else:
        encode = _float_factor if type in ("FLOAT", "DOUBLE") else _integer_factor
        parts = [encode(_codec(type).native(chunk), type, limbs, shift) for chunk in chunks if len(chunk)]
    if not parts:
        return np.empty((0, limbs), np.int64)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def decode_sum(limbs: np.ndarray, shift: int, present: np.ndarray | None, type: str) -> pa.Array:
    """Sums in DuckDB's result type: HUGEINT, DECIMAL(w,s), BIGINT (counts), or DOUBLE (value * 2^-shift, rounded).

    `limbs` is (n, L); rows whose `present` is 0 are NULL. DataError if a sum that is not NULL is beyond the type.
    """
    limbs, null = np.ascontiguousarray(limbs), _absent(present)
    if type == "DOUBLE":
        return _nullable(pa.float64(), null, _doubles(limbs, shift))
    low, high = _two_words(limbs, null, type)
    if type == "BIGINT":
        if limbs.shape[1] > 1:
            _require(high == low >> 63, null, "COUNT", type)
        return _nullable(pa.int64(), null, low)
    scalar = parse_type(type)
    if scalar.family == "DECIMAL":
        _require(_below(low, high, 10**scalar.width), null, "SUM", type)
    values = np.empty((len(limbs), 2), np.int64)
    values[:, 0], values[:, 1] = low, high
    arrow_type = _codec(type).arrow_type if type == "HUGEINT" else pa.decimal128(scalar.width, scalar.scale)
    return _nullable(arrow_type, null, values)


def decode_avg(
    limbs: np.ndarray, shift: int, scale: int, present: np.ndarray, argument_type: str, from_sum: bool = False
) -> pa.Array:
    """AVG as `averages` computes it; NULL where `present`, the number of values, is 0."""
    found = averages(limbs, shift, scale, present, argument_type, from_sum)
    return _nullable(pa.float64(), _absent(present), found)


def averages(
    limbs: np.ndarray, shift: int, scale: int, present: np.ndarray, argument_type: str, from_sum: bool = False
) -> np.ndarray:
    """AVG as DuckDB computes it, a DOUBLE; any number where `present`, the number of values, is 0.

    For integers and decimals DuckDB has two ways that differ in the last bit: its AVG operator divides in long
    double by count * 10^scale; but a query without FILTER that has no GROUP BY, or also has the SUM or COUNT of the
    same argument, is rewritten to CAST(SUM AS DOUBLE) / count. `from_sum` asks for the latter. For FLOAT and
    DOUBLE it is the correctly rounded sum divided by the count.
    """
    limbs, scalar = np.ascontiguousarray(limbs), parse_type(argument_type)
    # The two whose states are 64-bit integers: TINYINT is cast to INTEGER.
    is_short = argument_type == "SMALLINT" or (scalar.family == "DECIMAL" and scalar.width <= 4)
    is_real = argument_type in ("FLOAT", "DOUBLE")
    if limbs.shape[1] == 1 and scale <= _MOST_PLACES and not is_real and not from_sum:
        found, extended = np.empty(len(limbs)), _EXTENDED and not is_short
        counts, where = np.ascontiguousarray(present), found.ctypes.data
        if not kernels.quotients(limbs.ctypes.data, counts.ctypes.data, 10**scale, len(found), extended, where):
            return found
    count = np.where(present == 0, 1, present)
    if is_real:
        return _doubles(limbs, shift) / count
    low, high = _two_words(limbs, present == 0, "HUGEINT")
    if from_sum:
        return _sum_as_double(low, high, scale) / count.astype(np.float64)
    if is_short:
        return low.astype(np.float64) / (count.astype(np.float64) * 10.0**scale)
    divisor = count.astype(np.longdouble) * np.longdouble(10.0**scale)
    return (_as_long_double(low, high) / divisor).astype(np.float64)


def quotient_factor(scale: int, argument_type: str, from_sum: bool = False) -> int | None:
    """What the number of values is multiplied by when an AVG of an exact sum is one quotient of words, negative if it
    is one of doubles; None if it is not."""
    scalar = parse_type(argument_type)
    if argument_type in ("FLOAT", "DOUBLE") or scale > (0 if from_sum else _MOST_PLACES):
        return None
    is_short = argument_type == "SMALLINT" or (scalar.family == "DECIMAL" and scalar.width <= 4)
    return 10**scale if _EXTENDED and not is_short and not from_sum else -(10**scale)


def with_specials(finite: pa.Array, nans: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> pa.Array:
    """A floating result where non-finite values were counted apart: NaN, or an infinity, prevails as in addition."""
    import pyarrow.compute as pc

    for counts, value in ((positive, np.inf), (negative, -np.inf), (nans, np.nan)):
        finite = pc.if_else(pa.array(counts > 0), pa.scalar(value), finite)
    return pc.if_else(pa.array((positive > 0) & (negative > 0)), pa.scalar(np.nan), finite)


def combine(terms: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    """The sum of coefficient * numbers over the terms, (n, L) each, in as many limbs as it needs; never overflows."""
    bound = sum(abs(coefficient) * max(1, _magnitude(limbs)) for coefficient, limbs in terms)
    if bound < 2**63:
        total = sum((coefficient * limbs[:, 0] for coefficient, limbs in terms), np.zeros(len(terms[0][1]), np.int64))
        return np.ascontiguousarray(total).reshape(-1, 1)
    if any(abs(coefficient) >= 2**64 for coefficient, _ in terms):
        return _combine_large(terms)
    out = np.zeros((len(terms[0][1]), bound.bit_length() // 64 + 1), np.int64)
    for coefficient, limbs in terms:
        word, whole = abs(coefficient), np.ascontiguousarray(limbs)
        factor = word - 2**64 if word >= 2**63 else word
        kernels.accumulate(
            whole.ctypes.data, whole.shape[1], factor, coefficient < 0, out.ctypes.data, out.shape[1], len(out)
        )
    return _trimmed(out)


def to_integers(limbs: np.ndarray) -> list[int]:
    """The numbers as Python integers: at once where all of them are whole words, else one by one."""
    if not (limbs[:, 1:] != limbs[:, :1] >> 63).any():
        return limbs[:, 0].tolist()
    data = np.ascontiguousarray(limbs)
    return [int.from_bytes(row.tobytes(), "little", signed=True) for row in data]


def from_integers(numbers: Sequence[int], limbs: int) -> np.ndarray:
    """Python integers as an (n, limbs) array. OverflowError if one does not fit."""
    data = b"".join(number.to_bytes(8 * limbs, "little", signed=True) for number in numbers)
    return np.frombuffer(bytearray(data), np.int64).reshape(-1, limbs)


@cache
def _codec(type: str) -> Codec:
    return codec_for(type, Dictionaries())


def _integer_factor(array: pa.Array, type: str, limbs: int, shift: int) -> np.ndarray:
    low, high, top = _integer_words(array, type)
    nulls = nulls_of(array)
    if nulls is not None:
        low, high, top = (np.where(nulls, 0, word) for word in (low, high, top))
    if limbs < 3 and (top != high >> 63).any():
        raise FactorRange(3, shift)
    if limbs < 2 and (high != low >> 63).any():
        raise FactorRange(2, shift)
    out = np.empty((len(array), limbs), np.int64)
    for i in range(limbs):
        out[:, i] = (low, high, top)[min(i, 2)]
    return out


def _integer_words(array: pa.Array, type: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The low and high word of each value, and the words above."""
    if type in ("HUGEINT", "UHUGEINT") or type.startswith("DECIMAL"):
        values = fixed_values(array, TWO_WORDS)
        low, high = values["low"], values["high"]
        return low, high, np.zeros_like(high) if type == "UHUGEINT" else high >> 63
    if type == "BOOLEAN":
        low = (fixed_values(array, np.int8) != 0).astype(np.int64)
    else:
        low = fixed_values(array, array.type.to_pandas_dtype()).astype(np.int64)
    high = np.zeros_like(low) if type == "UBIGINT" else low >> 63
    return low, high, high


def _float_factor(array: pa.Array, type: str, limbs: int, shift: int) -> np.ndarray:
    bits = fixed_values(array, array.type.to_pandas_dtype()).astype(np.float64).view(np.int64)
    nulls = nulls_of(array)
    if nulls is not None:
        bits = np.where(nulls, 0, bits)
    bounds = np.array([2**62, -(2**62)])
    if not kernels.float_bounds(bits.ctypes.data, len(bits), bounds.ctypes.data):
        raise DataError(f"a sum over {type} met NaN or an infinity", why="they have no exact sum")
    lowest, highest = map(int, bounds)
    out = np.zeros((len(array), limbs), np.int64)
    if highest == -(2**62):
        return out
    needed_shift = max(shift, -lowest)
    needed_limbs = max(highest + needed_shift, 0) // 64 + 1
    if needed_shift > shift or needed_limbs > limbs:
        raise FactorRange(max(limbs, needed_limbs), needed_shift)
    kernels.float_limbs(bits.ctypes.data, len(bits), shift, out.ctypes.data, limbs)
    return out


def _product_factor(array: pa.Array, type: str, limbs: int, shift: int) -> np.ndarray:
    """The products of the elements of arrays, each element in an equal share of the unit 2^-shift."""
    element, _, digits = type.rstrip("]").rpartition("[")
    length, width = int(digits), 1
    share = shift // length
    values = array.values[array.offset * length : (array.offset + len(array)) * length]
    while True:
        try:
            factors = encode_factor(values, element, width, share).reshape(len(array), length, -1)
            break
        except FactorRange as needed:
            width, share = needed.limbs, needed.shift
    product = factors[:, 0]
    for place in range(1, length):
        product = _multiplied(product, factors[:, place])
    product = _trimmed(product)
    if product.shape[1] > limbs or share * length > shift:
        raise FactorRange(max(limbs, product.shape[1]), share * length)
    out = np.repeat(product[:, -1:] >> 63, limbs, axis=1)
    out[:, : product.shape[1]] = product
    return out


def _multiplied(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The product of numbers row by row, in as many limbs as both have."""
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    widths, rows = (left.shape[1], right.shape[1]), len(left)
    out, room = np.empty((rows, sum(widths)), np.int64), np.empty(2 * sum(widths) + 1, np.int64)
    kernels.multiply_rows(
        left.ctypes.data, widths[0], right.ctypes.data, widths[1], out.ctypes.data, rows, room.ctypes.data
    )
    return out


def _absent(present: np.ndarray | None) -> np.ndarray | None:
    """Which rows have no value, or None if each has one."""
    return None if present is None or present.min(initial=1) > 0 else present == 0


def _nullable(arrow_type: pa.DataType, null: np.ndarray | None, values: np.ndarray) -> pa.Array:
    """An array of fixed-width `values`, NULL where that says; shares the values' memory."""
    bitmap = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return array_of(arrow_type, bitmap, values)


def _doubles(limbs: np.ndarray, shift: int) -> np.ndarray:
    bits, whole = np.empty(len(limbs), np.int64), np.ascontiguousarray(limbs)
    room, width = np.empty(limbs.shape[1], np.int64), limbs.shape[1]
    kernels.nearest_doubles(whole.ctypes.data, width, shift, room.ctypes.data, bits.ctypes.data, len(bits))
    return bits.view(np.float64)


def _two_words(limbs: np.ndarray, null: np.ndarray | None, type: str) -> tuple[np.ndarray, np.ndarray]:
    """Low and high word of numbers that have to fit two limbs where they are not NULL."""
    low = limbs[:, 0]
    if limbs.shape[1] == 1:
        return low, low >> 63
    high = limbs[:, 1]
    for i in range(2, limbs.shape[1]):
        _require(limbs[:, i] == high >> 63, null, "SUM", type)
    return low, high


def _below(low: np.ndarray, high: np.ndarray, limit: int) -> np.ndarray:
    """Whether |number| < limit."""
    low = low.view(np.uint64) if low.flags.c_contiguous else low.astype(np.uint64)
    above, above_low = limit >> 64, np.uint64(limit % 2**64)
    under, under_low = -limit >> 64, np.uint64(-limit % 2**64)
    not_above = (high < above) | ((high == above) & (low < above_low))
    return not_above & ((high > under) | ((high == under) & (low > under_low)))


def _require(holds: np.ndarray, null: np.ndarray | None, function: str, type: str) -> None:
    if not (holds if null is None else holds | null).all():
        raise DataError(
            f"{function} is beyond {type}",
            why=f"DuckDB's result type {type} cannot hold it",
            hint="sum CAST(... AS DOUBLE), or filter the group out before it is summed",
        )


def _as_long_double(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """128-bit integers as long doubles, by the steps (and roundings) of DuckDB's AVG."""
    if (high == low >> 63).all():
        return low.astype(np.longdouble)  # Exact, as each way below.
    unsigned = low.astype(np.uint64)
    general = unsigned.astype(np.longdouble) + high.astype(np.longdouble) * _TWO_64
    small_negative = -(~unsigned).astype(np.longdouble) - np.longdouble(1)
    return np.where(high == -1, small_negative, general)


def _sum_as_double(low: np.ndarray, high: np.ndarray, scale: int) -> np.ndarray:
    """CAST(SUM AS DOUBLE), which rounds correctly."""
    if scale == 0:
        return _as_double(low, high)
    exact = (high == low >> 63) & (np.abs(low) <= 2**53) & (low != NULL_CODE) & (scale <= 22)
    result = low / 10.0**scale
    for row in np.flatnonzero(~exact):
        result[row] = ((int(high[row]) << 64) + int(low[row]) % 2**64) / 10**scale
    return result


def _as_double(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """128-bit integers as doubles, correctly rounded.

    The magnitude's 64 leading bits round once: their last bit also stands for all bits that follow (it is sticky).
    """
    negative = high < 0
    below, above = (np.where(negative, ~word, word).astype(np.uint64) for word in (low, high))
    below += negative
    above += negative & (below == 0)
    width = np.frexp(above.astype(np.float64))[1]
    width -= (width > 0) & (above >> np.maximum(width - 1, 0).astype(np.uint64) == 0)  # Rounded up to a power of two.
    width = width.astype(np.uint64)
    left = np.uint64(64) - width
    leading = (above << left) | (below >> width) | (below << left != 0)
    magnitude = np.ldexp(leading.astype(np.float64), width.astype(np.int64))
    return np.where(negative, -magnitude, magnitude)


def _magnitude(limbs: np.ndarray) -> int:
    """A bound of |number| over the rows: exact for one limb, else by the width."""
    if limbs.shape[1] > 1:
        return 2 ** (64 * limbs.shape[1] - 1)
    return max(int(limbs.max(initial=0)), -int(limbs.min(initial=0)))


def _trimmed(limbs: np.ndarray) -> np.ndarray:
    """Without leading limbs that only repeat the sign of the one below in every row."""
    width = limbs.shape[1]
    while width > 1 and (limbs[:, width - 1] == limbs[:, width - 2] >> 63).all():
        width -= 1
    return np.ascontiguousarray(limbs[:, :width])


def _combine_large(terms: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    """As `combine` for coefficients beyond 64 bits, one row at a time."""
    columns = [[coefficient * number for number in to_integers(limbs)] for coefficient, limbs in terms]
    totals = [sum(row) for row in zip(*columns, strict=True)]
    width = max((total.bit_length() // 64 + 1 for total in totals), default=1)
    return from_integers(totals, width)

"""One-word codecs: integers, booleans, dates, times, narrow decimals and floating-point numbers."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

import numpy as np
import pyarrow as pa

from sqlfront.storage.codecs.casting import Caster
from sqlfront.storage.codecs.codec import (
    RESERVED_HIGH,
    TWO_WORDS,
    Codec,
    array_of,
    escape,
    fixed_array,
    fixed_values,
    mark_nulls,
    nulls_of,
    opaque_storage,
    safe_cast,
    unescape,
)
from sqlfront.storage.codecs.dictionary import validity
from sqlfront.storage.codecs.types import ScalarType
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW
from sqlfront.storage.kernels.tables.appended_rows import FLIPPED, NARROW, SIGNED, WORD

_MAX = 2**63 - 1
_EPOCH = datetime.datetime(1970, 1, 1)
_EXACT = Context(prec=100, traps=[Inexact, InvalidOperation, Overflow])
_MICROSECOND = datetime.timedelta(microseconds=1)


class IntegerCodec(Codec):
    """Integers of up to 64 bits, as they are; the BIGINT whose code would be NULL's is escaped."""

    def __init__(self, type: str, arrow_type: pa.DataType, caster: Caster) -> None:
        super().__init__(type, arrow_type, caster)
        self._dtype = arrow_type.to_pandas_dtype()
        limits = np.iinfo(self._dtype)
        self._low, self._high = int(limits.min), int(limits.max)
        self._bias = NULL_CODE + 1 if type == "UBIGINT" else 0
        self._reserved = {"BIGINT": RESERVED_LOW, "UBIGINT": RESERVED_HIGH}.get(type)
        self.layout = {"BIGINT": WORD, "INTEGER": NARROW}.get(type)

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        if not self._bias and words[0].min(initial=0) > RESERVED_LOW:  # There is no NULL, and nothing to undo.
            return array_of(self.arrow_type, None, words[0].astype(self._dtype, copy=False))
        codes = words[0] if self._reserved is None else unescape(words[0], self._reserved)
        if self._bias:
            codes = codes.view(np.uint64) - np.uint64(self._bias % 2**64)
        return fixed_array(self.arrow_type, words[0], codes.astype(self._dtype, copy=False))

    def _native(self, array: pa.Array) -> pa.Array | None:
        if array.type == self.arrow_type:
            return array
        return safe_cast(array, self.arrow_type) if pa.types.is_integer(array.type) else None

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        values = fixed_values(array, self._dtype)
        if self._bias:
            codes = (values + np.uint64(self._bias % 2**64)).view(np.int64)
        else:
            codes = values.astype(np.int64)
        if self._reserved is not None:
            escape(array, codes, self.type, self._reserved)
        mark_nulls(array, codes)
        return [codes]

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        if type(value) is not int or not self._low <= value <= self._high:
            return None
        code = value + self._bias
        escaped = code == NULL_CODE or code > _MAX or code == self._reserved
        return None if escaped else (code,)


class BooleanCodec(Codec):
    """0 and 1."""

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        bits = pa.py_buffer(np.packbits(words[0] == 1, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(words[0]), [validity(words[0]), bits])

    def _native(self, array: pa.Array) -> pa.Array | None:
        if pa.types.is_boolean(array.type):
            return array.cast(pa.int8())
        return array.storage if isinstance(array.type, pa.Bool8Type) else None

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        codes = (fixed_values(array, np.int8) != 0).astype(np.int64)
        mark_nulls(array, codes)
        return [codes]

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        return (int(value),) if type(value) is bool else None


class TimeCodec(Codec):
    """Dates, times and timestamps: days, or units since midnight or 1970, infinities as DuckDB has them."""

    def __init__(
        self, type: str, arrow_type: pa.DataType, caster: Caster, from_python: Callable[[Any], int | None] | None = None
    ) -> None:
        super().__init__(type, arrow_type, caster)
        self._dtype = np.int32 if arrow_type == pa.date32() else np.int64
        self.layout = WORD if self._dtype is np.int64 else NARROW
        self._from_python = from_python

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        return fixed_array(self.arrow_type, words[0], words[0].astype(self._dtype, copy=False))

    def _native(self, array: pa.Array) -> pa.Array | None:
        if array.type == self.arrow_type:
            return array
        if pa.types.is_timestamp(self.arrow_type) and pa.types.is_timestamp(array.type):
            aware = self.arrow_type.tz is not None, array.type.tz is not None
            return safe_cast(array, self.arrow_type) if aware[0] == aware[1] else None
        if pa.types.is_time(self.arrow_type) and pa.types.is_time(array.type):
            return safe_cast(array, self.arrow_type)
        return safe_cast(array, pa.date32()) if self._dtype is np.int32 and array.type == pa.date64() else None

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        codes = fixed_values(array, self._dtype).astype(np.int64)
        invalid = codes == NULL_CODE
        if invalid.any():
            nulls = nulls_of(array)
            if nulls is None or (invalid & ~nulls).any():
                raise DataError(f"a value is not a {self.type}", why="it lies before the first one DuckDB can hold")
        mark_nulls(array, codes)
        return [codes]

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        code = self._from_python(value) if self._from_python else None
        return None if code is None else (code,)


class TimeZoneTimeCodec(Codec):
    """TIME WITH TIME ZONE: DuckDB's own 64 bits (time, then offset), which it compares for equality."""

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        return fixed_array(self.arrow_type, words[0], words[0])

    def _native(self, array: pa.Array) -> pa.Array | None:
        return opaque_storage(array, "time_tz")

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        codes = fixed_values(array, np.int64).copy()
        mark_nulls(array, codes)
        return [codes]


class DecimalCodec(Codec):
    """DECIMAL of up to 18 digits: the scaled integer."""

    layout = WORD

    def __init__(self, scalar: ScalarType, caster: Caster) -> None:
        super().__init__(scalar.name, pa.decimal64(scalar.width, scalar.scale), caster)
        self._scale, self._limit = scalar.scale, 10**scalar.width
        self._input = pa.decimal128(scalar.width, scalar.scale)

    def layout_in(self, arrow_type: pa.DataType) -> int | None:
        return SIGNED if arrow_type == self._input else super().layout_in(arrow_type)

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        return fixed_array(self.arrow_type, words[0], words[0])

    def _native(self, array: pa.Array) -> pa.Array | None:
        return decimal_native(array, self._input)

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        codes = fixed_values(array, TWO_WORDS)["low"].copy()
        mark_nulls(array, codes)
        return [codes]

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        code = scaled(value, self._scale)
        return (code,) if code is not None and -self._limit < code < self._limit else None


class FloatCodec(Codec):
    """DOUBLE and FLOAT: the bits, flipped so that codes are ordered as DuckDB orders; one zero and one NaN."""

    def __init__(self, type: str, arrow_type: pa.DataType, caster: Caster) -> None:
        super().__init__(type, arrow_type, caster)
        self._dtype = arrow_type.to_pandas_dtype()
        self.layout = FLIPPED if self._dtype is np.float64 else None

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        values = floats_of(words[0])
        if self._dtype is np.float32:
            values = np.where(words[0] == NULL_CODE, 0.0, values).astype(np.float32)
        return fixed_array(self.arrow_type, words[0], values)

    def _native(self, array: pa.Array) -> pa.Array | None:
        narrower = pa.types.is_floating(array.type) and array.type.bit_width <= self.arrow_type.bit_width
        return array.cast(self.arrow_type) if narrower else None

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        codes = float_codes(fixed_values(array, self._dtype))
        mark_nulls(array, codes)
        return [codes]

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        if type(value) is not float or self._dtype is np.float32:
            return None
        if value != value:
            return (0x7FF8 << 48,)
        bits = struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
        return (bits ^ ((bits >> 63) & _MAX),)


def decimal_native(array: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Decimals and integers as decimal128, where that is exact."""
    if array.type == target:
        return array
    return safe_cast(array, target) if pa.types.is_decimal(array.type) or pa.types.is_integer(array.type) else None


def scaled(value: Any, scale: int) -> int | None:
    """value * 10^scale as an integer where that is exact, for int and Decimal, else None."""
    if type(value) is int:
        return value * 10**scale
    if type(value) is not Decimal or not value.is_finite():
        return None
    if value.adjusted() > 38:
        return None
    try:
        shifted = _EXACT.scaleb(value, scale)
    except ArithmeticError:
        return None
    number = int(shifted)
    return number if number == shifted else None


def date_code(value: Any) -> int | None:
    """Days since 1970. DuckDB reads the last and first date of Python as infinities: left to it."""
    if type(value) is not datetime.date or value in (datetime.date.max, datetime.date.min):
        return None
    return value.toordinal() - 719163


def timestamp_code(value: Any) -> int | None:
    """Microseconds since 1970 of a naive datetime; extremes as in `date_code`."""
    if type(value) is not datetime.datetime or value.tzinfo is not None or value.year in (1, 9999):
        return None
    return (value - _EPOCH) // _MICROSECOND


def time_code(value: Any) -> int | None:
    """Microseconds since midnight of a naive time."""
    if type(value) is not datetime.time or value.tzinfo is not None:
        return None
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def float_codes(values: np.ndarray) -> np.ndarray:
    """The codes of floating numbers, ordered as DuckDB orders them: one zero and one NaN, the greatest."""
    with np.errstate(invalid="ignore"):  # What stands for NULL may be a NaN that signals.
        values = values.astype(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return _flip(values.view(np.int64))


def floats_of(codes: np.ndarray) -> np.ndarray:
    """The floating numbers that have these codes; any for NULL."""
    return _flip(codes).view(np.float64)


def _flip(bits: np.ndarray) -> np.ndarray:
    """Reverse the order of negative numbers; its own inverse."""
    return bits ^ ((bits >> 63) & _MAX)

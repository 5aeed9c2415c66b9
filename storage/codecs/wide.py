"""Two-word codecs: 128-bit integers, wide decimals, UUIDs and intervals."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sqlfront.storage.codecs.casting import Caster
from sqlfront.storage.codecs.codec import (
    RESERVED_HIGH,
    Codec,
    escape,
    fixed_array,
    fixed_values,
    mark_nulls,
    opaque_storage,
    reserved_error,
    unescape,
)
from sqlfront.storage.codecs.fixed import decimal_native, scaled
from sqlfront.storage.codecs.types import ScalarType
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW

_LOW_WORD = 2**64 - 1
_DAY = 86_400_000_000
_MONTH = 30


class WideCodec(Codec):
    """128-bit numbers: the high word first, shifted so that unsigned order becomes signed order, then the low word."""

    words = 2
    _layout = np.dtype([("low", "<i8"), ("high", "<i8")])

    def __init__(self, type: str, arrow_type: pa.DataType, caster: Caster, signed: bool) -> None:
        super().__init__(type, arrow_type, caster)
        self._bias = 0 if signed else NULL_CODE + 1
        self._reserved = RESERVED_LOW if signed else RESERVED_HIGH
        self._range = (-(2**127), 2**127 - 1) if signed else (0, 2**128 - 1)

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        high = unescape(words[0], self._reserved)
        values = np.empty(len(high), self._layout)
        values["high"] = high - np.int64(self._bias)
        values["low"] = words[1]
        return fixed_array(self.arrow_type, words[0], values)

    def _native(self, array: pa.Array) -> pa.Array | None:
        native = opaque_storage(array, self.type.lower())
        return native if native is not None or self._bias else decimal_native(array, pa.decimal128(38, 0))

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        values = fixed_values(array, self._layout)
        high = values["high"] + np.int64(self._bias)
        low = values["low"].astype(np.int64)
        high = high.astype(np.int64, copy=False)
        escape(array, high, self.type, self._reserved)
        mark_nulls(array, high, low)
        return [high, low]

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        in_range = type(value) is int and self._range[0] <= value <= self._range[1]
        return self._split(value) if in_range else None

    def _split(self, value: int) -> tuple[int, int]:
        high = _signed(((value >> 64) + self._bias) & _LOW_WORD)
        if high == self._reserved:
            raise reserved_error(self.type)
        return self._reserved if high == NULL_CODE else high, _signed(value & _LOW_WORD)


class WideDecimalCodec(WideCodec):
    """DECIMAL of 19 to 38 digits: the scaled integer in two words."""

    def __init__(self, scalar: ScalarType, caster: Caster) -> None:
        super().__init__(scalar.name, pa.decimal128(scalar.width, scalar.scale), caster, signed=True)
        self._scale, self._limit = scalar.scale, 10**scalar.width

    def _native(self, array: pa.Array) -> pa.Array | None:
        return decimal_native(array, self.arrow_type)

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        number = scaled(value, self._scale)
        return self._split(number) if number is not None and -self._limit < number < self._limit else None


class UuidCodec(WideCodec):
    """UUID: its 128 bits as a number, first byte highest."""

    _layout = np.dtype([("high", ">i8"), ("low", ">i8")])

    def __init__(self, type: str, caster: Caster) -> None:
        super().__init__(type, pa.uuid(), caster, signed=False)

    def _native(self, array: pa.Array) -> pa.Array | None:
        return array.storage if isinstance(array.type, pa.UuidType) else None

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        return self._split(value.int) if type(value) is uuid.UUID else None


class IntervalCodec(Codec):
    """INTERVAL as DuckDB compares it: a month is 30 days and a day 24 hours.

    The words are days and the microseconds of the last day. Decoding carries into months and days with
    one sign, so 30 days and 1 month, equal to DuckDB, both come back as 1 month.
    """

    words = 2
    faithful = False
    _layout = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        valid = words[0] != NULL_CODE
        days, micros = np.where(valid, words[0], 0), words[1]
        borrow = (days < 0) & (micros > 0)
        days, micros = days + borrow, micros - borrow * _DAY
        months = _truncated(days, _MONTH).clip(-(2**31), 2**31 - 1)
        days = days - months * _MONTH
        values = np.empty(len(valid), self._layout)
        values["months"], values["days"] = months, days.clip(-(2**31), 2**31 - 1)
        values["nanos"] = (micros + (days - values["days"]) * _DAY) * 1000
        return fixed_array(self.arrow_type, words[0], values)

    def _native(self, array: pa.Array) -> pa.Array | None:
        return array if array.type == self.arrow_type else None

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        values = fixed_values(array, self._layout)
        micros = _truncated(values["nanos"].astype(np.int64), 1000)
        extra, micros = np.divmod(micros, _DAY)
        days = values["months"].astype(np.int64) * _MONTH + values["days"] + extra
        mark_nulls(array, days, micros)
        return [days, micros]


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _truncated(values: np.ndarray, divisor: int) -> np.ndarray:
    """Integer division towards zero."""
    quotient = values // divisor
    return quotient + ((values < 0) & (quotient * divisor != values))

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
    TWO_WORDS,
    Codec,
    escape,
    fixed_array,
    fixed_values,
    mark_nulls,
    nulls_of,
    opaque_storage,
    reserved_error,
    unescape,
)
from sqlfront.storage.codecs.fixed import decimal_native, scaled
from sqlfront.storage.codecs.types import ScalarType
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW
from sqlfront.storage.kernels.tables.appended_rows import WIDE

_LOW_WORD = 2**64 - 1
_DAY = 86_400_000_000
_MONTH = 30
# An INTERVAL's words: days and the high bits of the microseconds of a day; their low bits, months and carried days.
_CARRY_BITS, _SPELLING_BITS, _LOW_BITS, _HIGH_BITS = 18, 50, 11, 26
_HIGH_MICROS = 2**_HIGH_BITS - 1


class WideCodec(Codec):
    """128-bit numbers: the high word first, shifted so that unsigned order becomes signed order, then the low word."""

    words = 2
    _layout = np.dtype([("low", "<i8"), ("high", "<i8")])

    def __init__(self, type: str, arrow_type: pa.DataType, caster: Caster, signed: bool) -> None:
        super().__init__(type, arrow_type, caster)
        self._bias = 0 if signed else NULL_CODE + 1
        self.layout = WIDE if signed else None
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
    """INTERVAL as it is written: its length first, then its months and days.

    The length counts a month as 30 days and a day as 24 hours, as DuckDB's comparisons do. So the order of codes is
    DuckDB's order, and intervals of one length are ordered by their months and days. The length is 38 bits of days and
    37 of microseconds. Behind it are 32 bits of months, and 18 of the whole days that the microseconds hold: Arrow
    counts nanoseconds in 64 bits.
    """

    words = 2
    _layout = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        length, spelling = np.where(words[0] != NULL_CODE, words[0], 0), words[1]
        micros = (length & _HIGH_MICROS) << _LOW_BITS | spelling >> _SPELLING_BITS
        months = (spelling >> _CARRY_BITS & 2**32 - 1) - 2**31
        carry = (spelling & 2**_CARRY_BITS - 1) - 2 ** (_CARRY_BITS - 1)
        values = np.empty(len(length), self._layout)
        values["months"], values["days"] = months, (length >> _HIGH_BITS) - months * _MONTH - carry
        values["nanos"] = (carry * _DAY + micros) * 1000
        return fixed_array(self.arrow_type, words[0], values)

    def _native(self, array: pa.Array) -> pa.Array | None:
        return array if array.type == self.arrow_type else None

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        values = fixed_values(array, self._layout)
        carry, micros = np.divmod(_truncated(values["nanos"].astype(np.int64), 1000), _DAY)
        months = values["months"].astype(np.int64)
        days = months * _MONTH + values["days"] + carry
        self._check(array, days // _MONTH)
        length, spelling = self._words(days, micros, months, carry)
        mark_nulls(array, length, spelling)
        return [length, spelling]

    def _check(self, array: pa.Array, months: np.ndarray) -> None:
        """DataError for a length in months that DuckDB's `normalized_interval` cannot write."""
        beyond = (months < -(2**31)) | (months >= 2**31)
        nulls = nulls_of(array)
        if (beyond if nulls is None else beyond & ~nulls).any():
            raise DataError(
                "an INTERVAL is longer than 178,956,970 years",
                why="DuckDB compares intervals by a normal form, whose months have 32 bits",
                hint="use a shorter interval",
            )

    def _words(
        self, days: np.ndarray, micros: np.ndarray, months: np.ndarray, carry: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The words of a length, `days` and `micros`, and of its spelling: `carry` are days in the microseconds."""
        spelling = (months + 2**31) << _CARRY_BITS | carry + 2 ** (_CARRY_BITS - 1)
        low = (micros & 2**_LOW_BITS - 1) << _SPELLING_BITS
        return days << _HIGH_BITS | micros >> _LOW_BITS, low | spelling


class NormalIntervalCodec(IntervalCodec):
    """INTERVAL in one form for each length: 30 days are 1 month, and all parts have one sign."""

    def _words(
        self, days: np.ndarray, micros: np.ndarray, months: np.ndarray, carry: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        borrow = (days < 0) & (micros > 0)
        return super()._words(days, micros, _truncated(days + borrow, _MONTH), -borrow.astype(np.int64))


def wide_integers(array: pa.Array) -> list[int | None]:
    """The values of a HUGEINT array as Python's."""
    words, nulls = fixed_values(array, TWO_WORDS), nulls_of(array)
    pairs = zip(words["low"].tolist(), words["high"].tolist(), strict=True)
    values: list[int | None] = [(high << 64) + (low & (2**64 - 1)) for low, high in pairs]
    return values if nulls is None else [None if null else value for value, null in zip(values, nulls, strict=True)]


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _truncated(values: np.ndarray, divisor: int) -> np.ndarray:
    """Integer division towards zero."""
    quotient = values // divisor
    return quotient + ((values < 0) & (quotient * divisor != values))
